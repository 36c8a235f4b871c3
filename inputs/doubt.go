package inputs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Doubt says why a list may not be what its user means: most of its lines are of one site, as where another column has the
// sites, or most are no sites.
type Doubt struct {
	File    string // as in FileStats
	Of      uint64 // lines, without blank lines, comments and headers
	Lines   uint64 // of them, those in doubt: more than half
	Host    string // of these lines; "" if they are rejects
	Samples []Sample
}

// Sample is a line in doubt.
type Sample struct {
	Line   uint64 // 1-based
	Text   string // the line, or the cell with the host, cut at MaxText bytes; may hold any bytes
	Reason string // of a reject
}

// doubtSamples is how many lines a Doubt shows.
const doubtSamples = 5

// String says it in a sentence, without the file.
func (d *Doubt) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of its %d lines are ", d.Lines, d.Of)
	if d.Host == "" {
		b.WriteString("no sites")
	} else {
		b.WriteString("of one site, " + d.Host)
	}
	for i, s := range d.Samples {
		b.WriteString([]string{", as line ", ", "}[min(i, 1)])
		fmt.Fprintf(&b, "%d %q", s.Line, clip(strings.ToValidUTF8(s.Text, "\uFFFD"), 80))
		if s.Reason != "" && (i == 0 || s.Reason != d.Samples[i-1].Reason) {
			fmt.Fprintf(&b, ": %s", s.Reason)
		}
	}
	return b.String()
}

// Doubts reads lists that can be read again, and returns those that are in doubt. Limit, Sample, Mine and Reject have no effect, and
// duplicates are only counted: many URLs of many sites are an ordinary list.
func Doubts(ctx context.Context, paths []string, opt Options) (doubts []*Doubt, err error) {
	opt.Limit, opt.Sample, opt.Mine, opt.Reject = 0, 0, nil, nil
	r, err := Open(ctx, paths, opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var t tally
	for {
		if !r.open {
			if d := t.doubt(r.name); d != nil {
				doubts = append(doubts, d)
			}
			t = tally{sites: map[string]*siteTally{}}
			if err := r.nextStream(); err == io.EOF {
				return doubts, nil
			} else if err != nil {
				return nil, err
			}
		}
		line, reason, err := r.advance()
		if err == io.EOF {
			r.open = false
			continue
		}
		if err != nil {
			return nil, damaged(r.name, r.line+1, err)
		}
		if r.line++; reason == skipLine {
			continue
		}
		var entry Entry
		if reason == "" {
			entry, reason = r.entry()
		}
		t.lines++
		if reason == "" {
			t.site(entry, r.line)
			continue
		}
		t.rejects++
		if len(t.samples) < doubtSamples {
			t.samples = append(t.samples, Sample{r.line, string(line[:min(len(line), MaxText)]), reason})
		}
	}
}

// tally counts the lines of a list.
type tally struct {
	lines, rejects uint64
	samples        []Sample // of rejects
	sites          map[string]*siteTally
}

type siteTally struct {
	lines   uint64 // at least
	samples []Sample
}

// tallied bounds the sites that are counted at once. A site with more than half of the lines is always among them, and its count is at
// most a 1,000th of all lines too small (J. Misra, D. Gries: Finding repeated elements, 1982).
const tallied = 1000

// site counts a line of a site. Another port than the scheme's is another site.
func (t *tally) site(e Entry, line uint64) {
	key := e.Origin.Host()
	if e.Origin.Port() != e.Origin.Scheme().DefaultPort() {
		key = string(e.Origin.AppendHostTo(nil))
	}
	s := t.sites[key]
	if s == nil && len(t.sites) == tallied {
		for other, s := range t.sites {
			if s.lines--; s.lines == 0 {
				delete(t.sites, other)
			}
		}
		return
	}
	if s == nil {
		s = &siteTally{}
		t.sites[key] = s
	}
	if len(s.samples) < doubtSamples {
		s.samples = append(s.samples, Sample{Line: line, Text: e.Input})
	}
	s.lines++
}

// doubt judges a list that was read. A list without any site is none to doubt, and neither is one or two lines of a site.
func (t *tally) doubt(file string) *Doubt {
	if t.rejects*2 > t.lines && t.rejects < t.lines {
		return &Doubt{File: file, Of: t.lines, Lines: t.rejects, Samples: t.samples}
	}
	for host, s := range t.sites {
		if s.lines*2 > t.lines && s.lines > 2 {
			return &Doubt{File: file, Of: t.lines, Lines: s.lines, Host: host, Samples: s.samples}
		}
	}
	return nil
}
