package terminal

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// The last page of a scan: how it went, where its dataset is, and what to do next.

// EndingOptions are what a survey.Ending does not know.
type EndingOptions struct {
	Out   string // the dataset as given
	Took  time.Duration
	Facts []Fact // what is there beside the dataset
	Next  []Fact // the commands to give next, by what they are for
}

// Fact is a line: what it is about, and a text, which may be long.
type Fact struct{ Name, Text string }

// endingWidth bounds a line, except for names that can be copied, so that the page fits a window of usual size.
const endingWidth = 80

// Ending shows how a scan went.
func Ending(w io.Writer, e *summary.Ending, o EndingOptions) error {
	p := newPage(w, ColorAuto)
	p.width = min(p.width, endingWidth)
	a := e.Answers()
	all := a.Answered + a.Failed + a.NotAsked
	p.line()
	how := "no site was asked"
	if all > 0 {
		how = fmt.Sprintf("%s of %s sites answered (%s)", printable.Number(a.Answered), printable.Number(all), percentOf(a.Answered, all))
	}
	took := ", in "
	if e.AlreadyKept > 0 {
		took = "; this run took "
	}
	p.flow(0, words(styled(bold, "Scan %s:", e.ScanID), text(how+took+spanText(o.Took)+".")))
	t := &table{indent: indent, wrap: true}
	fact := func(name string, n int64, format string, args ...any) {
		t.add(styled(dim, "%s", name), piece{text: printable.Number(n), right: true}, textf(format, args...))
	}
	if a.Failed > 0 {
		fact("failed", a.Failed, "%s", kindsText(a.Failures))
	}
	if a.NotAsked > 0 {
		fact("not asked", a.NotAsked, "%s", kindsText(a.Refusals))
	}
	if e.AlreadyKept > 0 {
		fact("kept before", e.AlreadyKept, "by earlier runs of this scan; this run kept %s", printable.Number(e.Kept))
	}
	if e.Rejected > 0 {
		what := "lines of the list"
		if e.Duplicates > 0 {
			what += fmt.Sprintf(", of them %s", printable.Count(e.Duplicates, "duplicate"))
		}
		if e.Stored {
			what += fmt.Sprintf("; see %s/_rejects/%s.jsonl", strings.TrimRight(o.Out, "/"), e.ScanID)
		}
		fact("rejected", e.Rejected, "%s", what)
	}
	if e.Throttled > 0 {
		fact("rate-limited", e.Throttled, "answers 429, or 503 with Retry-After; their addresses were asked more slowly")
	}
	more := func(name string, value piece) { t.add(styled(dim, "%s", name), piece{}, value) }
	if s := e.Scan; s != nil && len(s.Blocking.MostBlocked) > 0 && s.Enough(s.Blocking.Sites) {
		more("blocked most", text(mostBlocked(&s.Blocking)))
	}
	if e.Stored {
		size := ""
		if e.Scan != nil {
			size = fmt.Sprintf(" (%s)", bytesText(e.Scan.DatasetBytes))
		}
		more("dataset", piece{text: o.Out + size, whole: true})
	}
	for _, fact := range o.Facts {
		more(fact.Name, text(fact.Text))
	}
	for _, fact := range o.Next {
		more(fact.Name, piece{text: fact.Text, style: bold, whole: true})
	}
	p.table(t)
	return p.end()
}

// kindsText names outcomes with their numbers. Lines break only at semicolons.
func kindsText(counts []survey.Count) string {
	var list []string
	for _, c := range counts {
		list = append(list, c.Value+" "+printable.Number(c.Rows))
	}
	return strings.Join(list, "; ")
}

// mostBlocked names the first tokens with their shares.
func mostBlocked(b *summary.Blocking) string {
	var list []string
	for _, c := range b.MostBlocked {
		list = append(list, c.Token+" "+percentOf(c.Sites, b.Sites))
	}
	return fmt.Sprintf("%s of %s that have rules", strings.Join(list, ", "), printable.Count(b.Sites, "site"))
}

// spanText is a duration as a person says it: in its two largest units.
func spanText(d time.Duration) string {
	switch s := int64(d.Round(time.Second) / time.Second); {
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return units(s/60, "min", s%60, "s")
	case s < 86400:
		return units(s/3600, "h", s%3600/60, "min")
	default:
		return units(s/86400, "d", s%86400/3600, "h")
	}
}

func units(n int64, unit string, rest int64, smaller string) string {
	if rest == 0 {
		return fmt.Sprintf("%d %s", n, unit)
	}
	return fmt.Sprintf("%d %s %d %s", n, unit, rest, smaller)
}
