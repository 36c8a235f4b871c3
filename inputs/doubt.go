package inputs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/origin"
)

// Doubt says why a list may not be what its user means: most of its lines are no sites, or are of one site, for example
// because another column has the sites.
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
		fmt.Fprintf(&b, "%d %q", s.Line, Clip(strings.ToValidUTF8(s.Text, "\uFFFD"), 80))
		if s.Reason != "" && (i == 0 || s.Reason != d.Samples[i-1].Reason) {
			fmt.Fprintf(&b, ": %s", s.Reason)
		}
	}
	return b.String()
}

// Doubts reads lists that can be read again, and returns the doubts about them. Limit, Sample, Mine and Reject have no
// effect, and duplicates are only counted: many URLs of many sites are an ordinary list.
func Doubts(ctx context.Context, paths []string, opt Options) (doubts []*Doubt, err error) {
	var tallies []tally // of each stream
	err = eachLine(ctx, paths, opt, func(stream int, _ *Reader, _ []byte, e Entry, reason string) {
		for stream >= len(tallies) { // one may have no line
			tallies = append(tallies, tally{})
		}
		tallies[stream].add(e, reason)
	})
	if err != nil || !slices.ContainsFunc(tallies, tally.doubtful) {
		return nil, err
	}
	// Few lists come here. The lines of their most frequent sites are counted exactly.
	found := make([]Doubt, len(tallies))
	err = eachLine(ctx, paths, opt, func(stream int, r *Reader, line []byte, e Entry, reason string) {
		if stream >= len(found) {
			return // the file has grown
		}
		t, d := &tallies[stream], &found[stream]
		d.File, d.Of = r.name, t.lines
		switch rejects := t.rejects*2 > t.lines; {
		case rejects && reason != "":
			d.add(Sample{r.line, string(line[:min(len(line), MaxText)]), reason})
		case !rejects && reason == "" && siteOf(e.Origin) == t.first():
			d.Host = e.Origin.Host()
			d.add(Sample{Line: r.line, Text: e.Input})
		}
	})
	for i := range found {
		// There is no doubt about a list without any site, nor about two lines of one site.
		if d := &found[i]; d.Lines*2 > d.Of && (d.Host == "" && d.Lines < d.Of || d.Host != "" && d.Lines > 2) {
			doubts = append(doubts, d)
		}
	}
	return doubts, err
}

func (d *Doubt) add(s Sample) {
	if d.Lines++; len(d.Samples) < doubtSamples {
		d.Samples = append(d.Samples, s)
	}
}

// eachLine calls f with each line of lists that is an entry or a reject, duplicates included. Streams are counted from
// 0.
func eachLine(ctx context.Context, paths []string, opt Options, f func(stream int, r *Reader, line []byte, e Entry,
	reason string)) (err error) {
	r, err := Open(ctx, paths, opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		line, reason, ok, err := r.read()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case !ok || reason == skipLine:
			continue
		}
		var entry Entry
		if reason == "" {
			entry, reason = r.entry()
		}
		f(len(r.stats.Files)-1, r, line, entry, reason)
	}
}

// tallied is how many sites are counted at once. A site with more than half of the list's lines is among them, and its
// count is too small by less than a ninth of the lines (J. Misra, D. Gries: Finding repeated elements, 1982).
const tallied = 8

// tally counts the lines of a list.
type tally struct {
	lines, rejects uint64
	sites          [tallied]site
	counts         [tallied]uint64
}

// site is the site of a line, whatever the scheme.
type site struct {
	host string
	port uint16 // 0: that of the scheme
}

func siteOf(o origin.Origin) site {
	s := site{o.Host(), o.Port()}
	if s.port == o.Scheme().DefaultPort() {
		s.port = 0
	}
	return s
}

func (t *tally) add(e Entry, reason string) {
	t.lines++
	if reason != "" {
		t.rejects++
		return
	}
	s, free := siteOf(e.Origin), -1
	for i := range t.sites {
		switch {
		case t.counts[i] == 0:
			free = i
		case t.sites[i] == s:
			t.counts[i]++
			return
		}
	}
	if free >= 0 {
		t.sites[free], t.counts[free] = s, 1
		return
	}
	for i := range t.counts {
		t.counts[i]--
	}
}

// first returns the site that has more than half of the lines, if there is one.
func (t *tally) first() site {
	first := 0
	for i, n := range t.counts {
		if n > t.counts[first] {
			first = i
		}
	}
	return t.sites[first]
}

// doubtful reports whether the list may be in doubt.
func (t tally) doubtful() bool {
	return t.rejects*2 > t.lines || slices.Max(t.counts[:])+t.lines/(tallied+1) > t.lines/2
}
