package simweb

import (
	"fmt"
	"io"
	"strings"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// This file writes the generated parts of docs/outcomes.md: what each outcome means, and which behaviours lead to it.

// meaning is what a user should know of an outcome. An empty todo is nothing.
type meaning struct{ happened, todo string }

// meanings describes the outcomes. The other columns are derived from the code that acts on an outcome.
var meanings = [exchange.NumOutcomes]meaning{
	exchange.Answered: {"a final HTTP status came, whatever it is: see `status`", ""},
	exchange.RedirectLimit: {"more redirects than `--max-redirects`, or a loop",
		"to follow more, raise `--max-redirects`"},
	exchange.RedirectInvalid: {"a 3xx without a usable `Location`: missing, not http(s), or with user info", ""},
	exchange.DNSNotFound:     {"the name does not exist, or has no address", "remove dead names from the list"},
	exchange.DNSFailed:       {"the name servers refused or failed", "if many: check `--resolver`, lower `--dns-rate`"},
	exchange.DNSTimeout:      {"no name server answered in time", "as `dns_failed`"},
	exchange.ConnectRefused:  {"the host refused the connection", ""},
	exchange.ConnectTimeout: {"the host did not accept the connection in time",
		"if many: raise `--connect-timeout`, lower `--concurrency`"},
	exchange.ConnectFailed: {"any other failure to connect, such as no route",
		"if many: check the network, `--ipv4`, the limit of open files"},
	exchange.TLSFailed: {"the TLS handshake failed; with `--strict-tls` also an unverifiable certificate", ""},
	exchange.Timeout: {"connected, but handshake, head or a 2xx's body did not come in time",
		"if many: raise `--timeout`, lower `--concurrency`"},
	exchange.Reset:          {"the connection was reset, or FTP's second connection refused", ""},
	exchange.ClosedEarly:    {"the connection ended before the head or a 2xx's body did, even if only the body's coding shows it", ""},
	exchange.BadResponse:    {"not HTTP, a 2xx with a broken length or chunk, or a status outside 200 to 599", ""},
	exchange.BadEncoding:    {"a 2xx whose transfer or content coding is unknown, nested too deep or corrupt, or with bytes after a body whose coding has no checksum", ""},
	exchange.HeaderTooLarge: {"the response head, or FTP's replies, exceed 64 KiB", ""},
	exchange.BlockedAddress: {"the address is loopback, private or otherwise special, and bulkscan did not dial it",
		"`--allow-private`, if the network is yours"},
	exchange.OptedOut:    {"the host, or every address of it that is not private, is on the `--opt-out` list", ""},
	exchange.NotArchived: {"only of archives: a row has no body, or a redirect leads to a URL without a capture of that night in the archives read", "add the archives that have it ([archives.md](archives.md))"},
	exchange.Carried:     {"only of archives: the archive repeats an earlier file, and did not observe the site that day", ""},
}

// WriteOutcomes writes the table of outcomes as Markdown.
func WriteOutcomes(out io.Writer) error {
	var b strings.Builder
	b.WriteString(
		"| outcome | what happened | access | retried | then the other scheme | what to do |\n|---|---|---|---|---|---|\n")
	yesNo := map[bool]string{true: "yes", false: "no"}
	for _, o := range exchange.Outcomes() {
		access, again := "`"+accessAfter(o, 0)+"`", yesNo[o.Transient()]
		switch o {
		case exchange.Answered:
			access = fmt.Sprintf("2xx `%s`, 4xx `%s`, 5xx `%s`", accessAfter(o, 200), accessAfter(o, 404), accessAfter(o, 503))
			again = "if 408, 429 or 5xx"
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
