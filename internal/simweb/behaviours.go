package simweb

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// Behaviour is one way in which a host of the simulated web behaves, from its name in the DNS to its last byte.
//
// A behaviour is told in four steps, each a column of the table: how the name resolves, where it leads, what the TLS
// port does, and what is answered over HTTP. Steps left out are in order.
type Behaviour struct {
	Name  string
	Share float64 // of all hosts, 0 to 1; 0: only where a name or the configuration asks for it
	Does  string  // what happens, for readers
	Ends  string  // how a scan that knows no scheme, with a later try, ends it, for readers

	name   nameKind
	place  placeKind
	hello  helloKind
	reply  func(*ask) reply // nil: (*ask).ok
	counts bool             // the answer depends on how often the host was asked before
	limits bool             // the answer depends on how often its address is asked
	slows  bool             // a scanner asks the host's address more slowly thereafter
}

// answer is what the behaviour answers to one request.
func (b *Behaviour) answer(a *ask) reply {
	if b.reply == nil {
		return a.ok()
	}
	return b.reply(a)
}

// nameKind is how the DNS answers for a name.
type nameKind uint8

const (
	nameFine nameKind = iota
	nameMissing
	nameServFail
	nameRefused
	nameSilent
	nameNoAddress
	nameTruncated // over UDP, whole over TCP
	nameAlias     // by two CNAME records
	nameAliasLoop
	nameSlow
	nameLate          // later than a resolver waits before it asks again
	nameLost          // the first question about it goes unanswered
	nameWrongID       // before the answer comes a lie with another id
	nameWrongQuestion // before the answer comes a lie to another question
	nameMany          // a thousand addresses, by TCP
	nameChanging      // other addresses with each question, and no time to live
	nameZero          // 0.0.0.0
	nameSix           // only AAAA
	nameBesideHole    // two A: one is a black hole
	nameSixBesideHole // A is a black hole, AAAA is not
)

// placeKind is what listens where the name leads.
type placeKind uint8

const (
	placeFull placeKind = iota
	placePlainOnly
	placeNobody
	placeHole // nobody, and not even a refusal
)

// helloKind is what the TLS port does with a client's hello.
type helloKind uint8

const (
	helloFine helloKind = iota
	helloExpired
	helloSelfSigned
	helloWrongName
	helloUnknownCA
	hello12Only
	hello10Only
	helloHang
	helloReset
	helloClose
	helloAlert
	helloPlain         // answers in plain HTTP
	helloDrip          // shakes hands at a byte a second
	helloStall         // the same behind most of a very long chain
	helloGarbage       // answers bytes that are no TLS
	helloOtherProtocol // has no protocol in common with who speaks HTTP/1.1
	helloLongChain     // a hundred certificates
)

const nameOK = "ok"

// Behaviours returns the whole table, in its order. The first is ok, which takes the share that the others leave.
func Behaviours() []Behaviour { return slices.Clone(behaviours) }

// behaviourNamed finds a behaviour; nil where there is none.
func behaviourNamed(name string) *Behaviour { return behavioursByName[name] }

var behavioursByName = func() map[string]*Behaviour {
	m := make(map[string]*Behaviour, len(behaviours))
	for i := range behaviours {
		m[behaviours[i].Name] = &behaviours[i]
	}
	return m
}()

// WriteBehaviours writes the behaviours as Markdown, a list for each kind. A behaviour without an end is answered with
// status 200 and the whole body.
func WriteBehaviours(out io.Writer) error {
	var b strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&b, "\n### %s\n\n", k.name)
		for i := range k.rows {
			row := &k.rows[i]
			fmt.Fprintf(&b, "- `%s`", row.Name)
			if row.Share > 0 {
				fmt.Fprintf(&b, " (%s %%)", strconv.FormatFloat(row.Share*100, 'g', 4, 64))
			}
			fmt.Fprintf(&b, ": %s", row.Does)
			if row.Ends != "answered 200" {
				fmt.Fprintf(&b, " → %s", row.Ends)
			}
			b.WriteByte('\n')
		}
	}
	b.WriteByte('\n')
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("cannot write the behaviours: %w", err)
	}
	return nil
}

// Short names for the table.
const (
	timeoutOutcome  = exchange.Timeout
	resetOutcome    = exchange.Reset
	earlyOutcome    = exchange.ClosedEarly
	badOutcome      = exchange.BadResponse
	codingOutcome   = exchange.BadEncoding
	tooLargeOutcome = exchange.HeaderTooLarge
)

// kinds is the table, by what a behaviour is about; its rows are in the files zoo_*.go. Shares follow the wild: 85 % of
// the hosts end with 200, 13 % with 404, 0.5 % with 403, 1 % in a time-out. Rows without a share are there for the zoo
// alone: they exist where they are asked for by name.
var kinds = []struct {
	name string
	rows []Behaviour
}{
	{"Bodies", bodyRows},
	{"Names", nameRows},
	{"Connections", connectionRows},
	{"TLS", tlsRows},
	{"Statuses", statusRows},
	{"Redirects", redirectRows},
	{"Broken connections", brokenRows},
	{"Failing at first", flakyRows},
	{"Codings", codingRows},
	{"Heads", headRows},
}

// behaviours is the whole table in its order, which decides, with the shares, which host behaves how.
var behaviours = func() (all []Behaviour) {
	for _, k := range kinds {
		all = append(all, k.rows...)
	}
	return all
}()
