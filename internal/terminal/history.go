package terminal

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/printable"
)

// Stories prints what the ledger has of some sites, each by date.
func Stories(w io.Writer, stories []history.Story) error {
	out := bufio.NewWriter(w)
	for i := range stories {
		writeStory(out, &stories[i])
	}
	return out.Flush()
}

// writeStory prints a site's episodes and gaps by date. Texts of the ledger come from the network, so they are escaped.
func writeStory(w io.Writer, s *history.Story) {
	fmt.Fprintf(w, "%s port %d (%s)\n", printable.Line(s.Host), s.Port, printable.Line(s.Requested))
	gaps := s.Gaps
	gapsBefore := func(date history.Date) {
		for ; len(gaps) > 0 && (date == 0 || gaps[0].First < date); gaps = gaps[1:] {
			fmt.Fprintf(w, "    %s  %s\n", nights(gaps[0].First, gaps[0].Last), printable.Line(gaps[0].Class))
		}
	}
	for i := range s.Episodes {
		e := &s.Episodes[i]
		gapsBefore(e.ValidFrom)
		fmt.Fprintf(w, "  %s  %s\n", nights(e.ValidFrom, e.ValidTo), printable.Line(policyText(&e.What)))
		fmt.Fprintf(w, "      %s\n", printable.Line(beginning(e)))
	}
	gapsBefore(0)
}

func nights(from, to history.Date) string { return fmt.Sprintf("%s to %s", from, to) }

// beginning says why and when an episode began.
func beginning(e *history.Told) string {
	if e.PreviousLast == 0 {
		return "first seen; it may be older"
	}
	why := map[history.Cause]string{
		history.ByPolicy:     "its rules changed",
		history.ByManaged:    "a managed block changed",
		history.ByPresence:   "the file came, went, or became something else",
		history.ByRefusal:    "it began or ceased to refuse",
		history.ByObserver:   "another observer asked; no change is known",
		history.UnknownJudge: "the file changed, and so did the registry or the rules; whether its policy did is not known",
	}[e.Cause]
	return fmt.Sprintf("%s after %s, by %s", cmp.Or(why, string(e.Cause)), e.PreviousLast, e.ValidFrom)
}

// policyText describes a policy in one line.
func policyText(p *history.Policy) string {
	if p.Class != history.ClassRules {
		return strings.ReplaceAll(p.Class, "_", " ")
	}
	text := "rules: * " + p.StarVerdict
	for _, own := range []struct {
		word   string
		tokens []string
	}{{"blocked", p.OwnBlocked}, {"partial", p.OwnPartial}, {"allowed", p.OwnAllowed}} {
		if len(own.tokens) > 0 {
			text += "; " + own.word + " " + strings.Join(own.tokens, ", ")
		}
	}
	for _, more := range []struct{ name, value string }{{"Content-Signal", p.ContentSignal}, {"Content-Usage", p.ContentUsage}, {"License", p.License}, {"managed by", p.Managed}} {
		if more.value != "" {
			text += "; " + more.name + " " + more.value
		}
	}
	return text
}
