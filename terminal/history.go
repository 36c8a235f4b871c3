package terminal

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/printable"
)

// Stories prints the ledger's records of some sites, each by date.
func Stories(w io.Writer, stories []history.Story, when Color) error {
	p := newPage(w, when)
	for i := range stories {
		p.story(&stories[i])
	}
	return p.end()
}

// storyIndent is where lines about the beginning of an episode stand.
const storyIndent = 6

// story prints a site's episodes and gaps by date.
func (p *page) story(s *history.Story) {
	title := fmt.Sprintf("%s port %d (%s)", s.Host, s.Port, s.Requested)
	if s.Token != "" {
		title += ", " + s.Token
	}
	p.line(styled(bold, "%s", title))
	gaps := s.Gaps
	gapsBefore := func(date history.Date) {
		for ; len(gaps) > 0 && (date == 0 || gaps[0].First < date); gaps = gaps[1:] {
			p.line(textf("    %s  %s", nights(gaps[0].First, gaps[0].Last), gaps[0].Class))
		}
	}
	for i := range s.Episodes {
		e := &s.Episodes[i]
		gapsBefore(e.ValidFrom)
		what := policyText(&e.What)
		switch {
		case e.Token != nil && !e.Token.Changed:
			what = "no change for " + s.Token
		case e.Token != nil && e.Token.Verdict != "":
			what = e.Token.Verdict + treatedBy(e.Token)
		}
		t := &table{indent: 2, wrap: true}
		t.add(text(nights(e.ValidFrom, e.ValidTo)), text(what))
		p.table(t)
		if e.Token != nil && !e.Token.Changed {
			continue
		}
		p.about(beginning(e))
		switch {
		case e.Token != nil && e.Token.Verdict != "":
			p.deciding(e)
		case e.Change != nil:
			p.change(e.Change)
		}
	}
	gapsBefore(0)
}

// about prints a sentence about an episode.
func (p *page) about(sentence string) {
	p.blank(storyIndent)
	p.flow(storyIndent, words(text(sentence)))
}

// treatedBy names the groups that a token follows.
func treatedBy(t *history.Treated) string {
	switch t.Via {
	case "own":
		return " in a group of its own"
	case "fallback":
		return ": it follows " + t.Follows
	case "star":
		return " by *"
	}
	return ": no group names it"
}

// deciding prints the lines that decide for a token.
func (p *page) deciding(e *history.Told) {
	t := e.Token
	if !t.Stored {
		p.about("its file is not stored; this is by registry and rules " + e.Judge)
		return
	}
	if t.Line == 0 {
		return
	}
	p.fileLine(fmt.Sprintf("line %d: %s", t.Line, t.Group), plain)
	if t.RuleLine == 0 {
		p.about("no rule matches /, so that it is allowed")
		return
	}
	p.fileLine(fmt.Sprintf("line %d: %s", t.RuleLine, t.Rule), plain)
}

// change prints what changed in a file.
func (p *page) change(c *history.Change) {
	switch {
	case !c.HasBefore && !c.HasAfter:
		p.about("neither file is stored")
	case !c.HasBefore:
		p.about("the earlier file is not stored")
	case !c.HasAfter:
		p.about("the later file is not stored")
	case c.BodyBefore == c.BodyAfter:
		p.about("the file is the same")
	case len(c.Diff) == 0:
		p.about("the files differ in the ends of lines only")
	}
	for _, l := range c.Diff {
		p.fileLine(l, map[byte]style{'-': red, '+': green, '@': dim}[l[0]])
	}
	if c.More > 0 {
		p.about("and " + printable.Number(c.More) + " more")
	}
}

// fileLine prints a line of a file.
func (p *page) fileLine(l string, s style) {
	p.blank(storyIndent)
	p.write(piece{text: strings.ReplaceAll(l, "\t", " "), style: s}, p.width-storyIndent)
	_ = p.out.WriteByte('\n')
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
		history.UnknownJudge: "the registry or the rules changed, and earlier files are not stored; whether its policy changed is not known",
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
	for _, more := range []struct{ name, value string }{{"Content-Signal", p.ContentSignal},
		{"Content-Usage", p.ContentUsage}, {"License", p.License}, {"managed by", p.Managed}} {
		if more.value != "" {
			text += "; " + more.name + " " + more.value
		}
	}
	return text
}
