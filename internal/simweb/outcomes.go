package simweb

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// This file writes the tables of docs/outcomes.md: what each outcome means, and which behaviour leads to it.

// meaning is what a user should know of an outcome.
type meaning struct{ happened, todo string }

// meanings is the table of outcomes. What follows from one, the code says that acts on it.
var meanings = [exchange.NumOutcomes]meaning{
	exchange.Answered:        {"a final HTTP status came, whatever it is; see `status`", "nothing"},
	exchange.RedirectLimit:   {"one redirect more than `--max-redirects`, or a loop", "raise `--max-redirects` if you need them followed further"},
	exchange.RedirectInvalid: {"a 3xx without a location, or to what is no http(s) URL (user info counts as such)", "nothing"},
	exchange.DNSNotFound:     {"the name does not exist, or has no address", "remove dead names from the list"},
	exchange.DNSFailed:       {"the name servers refused or failed", "if many: check `--resolver`, lower `--dns-rate`"},
	exchange.DNSTimeout:      {"no name server answered in time", "as `dns_failed`"},
	exchange.ConnectRefused:  {"the host refused the connection", "nothing"},
	exchange.ConnectTimeout:  {"the host did not take the connection in time", "if many: raise `--connect-timeout`, lower `--concurrency`"},
	exchange.ConnectFailed:   {"any other failure to connect, such as no route", "if many: check the network, `--ipv4`, the limit of open files"},
	exchange.TLSFailed:       {"the TLS handshake failed; with `--strict-tls` also a certificate that cannot be verified", "nothing"},
	exchange.Timeout:         {"connected, but handshake, head or body did not come in time", "if many: raise `--timeout`, lower `--concurrency`"},
	exchange.Reset:           {"the connection was reset, or FTP's second connection refused", "nothing"},
	exchange.ClosedEarly:     {"the connection ended before the answer did, also where only the body's coding tells", "nothing"},
	exchange.BadResponse:     {"no HTTP, a broken length or chunk, or a status outside 200 to 599", "nothing"},
	exchange.BadEncoding:     {"the body's content coding is unknown, nested too deep or corrupt; or something stands behind a body whose coding has no checksum", "nothing"},
	exchange.HeaderTooLarge:  {"the response head exceeds 64 KiB, or FTP's replies do", "nothing"},
	exchange.BlockedAddress:  {"we refuse to dial the address: loopback, private or otherwise special", "`--allow-private`, if the network is yours"},
	exchange.OptedOut:        {"the host is on the `--opt-out` list, or every address of it is, private ones aside", "nothing"},
	exchange.NotArchived:     {"only with `--format warc`: a redirect leads to what has no capture in the archives that are read", "name the archives that have it, too (see [archives.md](archives.md))"},
}

// WriteOutcomes writes the table of outcomes as Markdown.
func WriteOutcomes(out io.Writer) error {
	var b strings.Builder
	b.WriteString("| outcome | what happened | access | tried again later | tries the other scheme | what to do |\n|---|---|---|---|---|---|\n")
	yesNo := map[bool]string{true: "yes", false: "no"}
	for _, o := range exchange.Outcomes() {
		access, again := "`"+accessAfter(o, 0)+"`", yesNo[o.Transient()]
		switch o {
		case exchange.Answered:
			access = fmt.Sprintf("2xx `%s`, 4xx `%s`, 5xx `%s`", accessAfter(o, 200), accessAfter(o, 404), accessAfter(o, 503))
			again = "if 429 or 5xx"
		case exchange.ConnectFailed:
			again = "only if `error` says that this machine was short of something"
		}
		m := meanings[o]
		fmt.Fprintf(&b, "| `%v` | %s | %s | %s | %s | %s |\n", o, m.happened, access, again, yesNo[o.FallsBack()], m.todo)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("cannot write the outcomes: %w", err)
	}
	return nil
}

// WriteZoo writes as Markdown how a scan without flags ends at each behaviour: first by outcomes, then by kinds of
// behaviour, where the list has the bare name and, where that ends otherwise, by https alone.
func (w *Web) WriteZoo(out io.Writer) error {
	var b strings.Builder
	kind, leading := "", [exchange.NumOutcomes][]string{}
	leads := func(name string, e *Expect) {
		leading[e.Outcomes[0]] = append(leading[e.Outcomes[0]], name)
	}
	for i := range behaviours {
		row := &behaviours[i]
		if row.Kind != kind {
			kind = row.Kind
			fmt.Fprintf(&b, "\n### %s\n\n| behaviour | what the host does | outcome | status | hops | body | access | attempts |\n|---|---|---|---|---|---|---|---|\n", kind)
		}
		bare, err := origin.Parse(row.Name + zooSuffix)
		if err != nil {
			return fmt.Errorf("cannot ask for %s: %w", row.Name, err)
		}
		auto, secure := w.Expect(bare, DefaultPolicy()), w.Expect(bare.As(origin.HTTPS), DefaultPolicy())
		writeEnd(&b, row.Name, row.Does, &auto)
		leads(row.Name, &auto)
		if secure.Outcomes[0] != auto.Outcomes[0] || secure.Status != auto.Status {
			writeEnd(&b, row.Name, "the same, where the list says `https://`", &secure)
			leads("https://"+row.Name, &secure)
		}
	}
	var index strings.Builder
	for o, names := range leading {
		if len(names) > 0 && exchange.Outcome(o) != exchange.Answered {
			fmt.Fprintf(&index, "- `%v`: %s\n", exchange.Outcome(o), strings.Join(names, ", "))
		}
	}
	if _, err := io.WriteString(out, index.String()+b.String()); err != nil {
		return fmt.Errorf("cannot write the zoo: %w", err)
	}
	return nil
}

// writeEnd writes one row.
func writeEnd(b *strings.Builder, name, does string, e *Expect) {
	status, body := "–", "–"
	if e.Status != 0 {
		status = strconv.Itoa(e.Status)
	}
	switch {
	case e.Truncated:
		body = "cut"
	case e.BodyBytes > 0:
		body = "whole"
	}
	outcome := "`" + e.Outcomes[0].String() + "`"
	if e.Status != 0 && e.FinalScheme == origin.HTTP && e.Hops == 0 {
		outcome += " by http"
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s | %d | %s | `%s` | %d |\n", name, does, outcome, status, e.Hops, body, e.Access, e.Attempts)
}
