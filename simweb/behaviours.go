package simweb

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Behaviour is one way in which a host of the simulated web behaves, from its name in the DNS to its last byte.
//
// It has four steps: how the name resolves, what listens at the address, what the TLS port does, and the HTTP answer.
// A zero step works as it should.
type Behaviour struct {
	Name  string
	Share float64 // of all hosts, 0 to 1; 0: only by name or configuration
	Does  string  // what happens, for readers
	Ends  string  // how a scan without flags ends from an entry without a scheme, for readers

	name   nameKind
	place  placeKind
	hello  helloKind
	reply  func(*ask) reply // nil: (*ask).ok
	counts bool             // the answer depends on the number of earlier requests to the host
	limits bool             // the answer depends on the rate of requests to its address
	slows  bool             // a scanner lowers its rate at the host's address
}

// answer returns the answer to one request.
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
	nameLate          // later than a resolver waits before it repeats the question
	nameLost          // the first question about it is lost
	nameWrongID       // a forged answer with another id comes first
	nameWrongQuestion // a forged answer to another question comes first
	nameMany          // a thousand addresses, by TCP
	nameChanging      // another address for each question, TTL 0
	nameZero          // 0.0.0.0
	nameSix           // only AAAA
	nameBesideHole    // two A: one is a black hole
	nameSixBesideHole // A is a black hole, AAAA is not
)

// placeKind is what listens at the host's address.
type placeKind uint8

const (
	placeFull placeKind = iota
	placePlainOnly
	placeVacant // no listener
	placeHole   // a black hole: the first packet is lost
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
	helloDrip          // writes a byte a second
	helloStall         // likewise, after most of a very long chain
	helloGarbage       // answers bytes that are not TLS
	helloOtherProtocol // offers no HTTP by ALPN
	helloLongChain     // sends a hundred certificates
)

const (
	nameOK          = "ok"
	nameWholeSilent = "gzip-whole-silent"
)

// Behaviours returns the table in its order. The first is ok, which takes the share that the others leave.
func Behaviours() []Behaviour { return slices.Clone(behaviours) }

// behaviourNamed returns a behaviour, or nil.
func behaviourNamed(name string) *Behaviour { return behavioursByName[name] }

var behavioursByName = func() map[string]*Behaviour {
	m := make(map[string]*Behaviour, len(behaviours))
	for i := range behaviours {
		m[behaviours[i].Name] = &behaviours[i]
	}
	return m
}()

// WriteBehaviours writes the behaviours as Markdown, a list for each kind. It leaves out what most have in common: an
// end as answered, with the described status or 200.
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
			ends := strings.TrimPrefix(row.Ends, "answered ")
			if status, _, _ := strings.Cut(row.Does, ","); ends != status { // the description says it
				ends = strings.TrimLeft(strings.TrimPrefix(ends, "200"), ", ")
				if ends != "" {
					fmt.Fprintf(&b, " → %s", ends)
				}
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

// kinds is the table, with its rows in the files zoo_*.go. Shares follow the real web: 83 % of the hosts end with 200,
// 13 % with 404, 0.6 % with 403, 1 % in a time-out. Rows without a share exist only by name.
var kinds = []struct {
	name string
	rows []Behaviour
}{
	{"Bodies", bodyRows},
	{"Names", nameRows},
	{"Connections", connectionRows},
	{"TLS", tlsRows},
	{"Statuses", statusRows},
	{"Challenges, and pages in the file's place", challengeRows},
	{"Redirects", redirectRows},
	{"Broken connections", brokenRows},
	{"Failing at first", flakyRows},
	{"Codings", codingRows},
	{"Heads", headRows},
}

// behaviours is the table in its order. Order and shares decide which host gets which behaviour.
var behaviours = func() (all []Behaviour) {
	for _, k := range kinds {
		all = append(all, k.rows...)
	}
	return all
}()
