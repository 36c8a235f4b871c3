package summary

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
)

// Ending is how one run of a scan went.
type Ending struct {
	ScanID            string
	Kept, AlreadyKept int64          // sites: of this run, and of earlier ones
	Outcomes          []survey.Count // of Kept, the most frequent first
	Throttled         int64          // answers that asked for fewer requests

	Entries, Lines, LeftOut int64 // of the list: usable lines, all lines, and those that --sample leaves out
	Rejected, Duplicates    int64 // lines of the list; Rejected includes Duplicates

	Stored   bool     // there is a dataset
	Replayed bool     // from archives and bodies, in which a missing answer is a result
	Scan     *Summary // the scan with its earlier runs; nil: not read
}

// Answers are outcomes by what they mean for a scan: an answer, a failure, or a site that was not asked.
type Answers struct {
	Answered, Failed, NotAsked int64
	Failures, Refusals         []survey.Count // the outcomes of Failed and of NotAsked
}

// AnswersOf sorts outcomes. The lists keep the order of counts.
func AnswersOf(counts []survey.Count) (a Answers) {
	notAsked := func(outcome string) bool {
		return slices.ContainsFunc(exchange.Outcomes(), func(o exchange.Outcome) bool {
			return o.String() == outcome && !o.Asked()
		})
	}
	for _, c := range counts {
		switch {
		case c.Value == exchange.Answered.String():
			a.Answered += c.Rows
		case notAsked(c.Value):
			a.NotAsked += c.Rows
			a.Refusals = append(a.Refusals, c)
		default:
			a.Failed += c.Rows
			a.Failures = append(a.Failures, c)
		}
	}
	return a
}

// CountOutcomes counts the outcomes of a scan's sites, the most frequent first. The error is commit.ErrNoTable if the
// scan lacks the table sites.
func CountOutcomes(ctx context.Context, st store.Store, scanID string) ([]survey.Count, error) {
	scan, err := commit.ReadScan(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	if !scan.Has(schema.Sites) {
		return nil, fmt.Errorf("table %s: %w", schema.Sites, commit.ErrNoTable)
	}
	var outcome string
	counts := survey.Counts{}
	err = survey.EachSite(ctx, scan, []table.Field{{Name: "outcome", Into: &outcome}}, func() { counts.Add(outcome) })
	return counts.Ordered(), err
}

// Answers are those of the scan with its earlier runs if it was read, else those of this run.
func (e *Ending) Answers() Answers {
	if e.Scan != nil {
		return AnswersOf(e.Scan.Outcomes)
	}
	return AnswersOf(e.Outcomes)
}

// Empty says why the scan has no results, and what to do about it; it is "" if there are some. A resumed scan that was
// not read counts as having results.
func (e *Ending) Empty() string {
	switch a := e.Answers(); {
	case e.Entries == 0 && e.Lines == 0:
		return "the list is empty"
	case e.Entries == 0:
		why := fmt.Sprintf("%d rejected", e.Rejected)
		if e.LeftOut > 0 {
			why += fmt.Sprintf(", %d left out by --sample", e.LeftOut)
		}
		return fmt.Sprintf("no usable site among the %d lines of the list (%s); see --dry-run, %s", e.Lines, why,
			FormFlags(e.Replayed))
	case e.Replayed || a.Answered > 0 || e.AlreadyKept > 0 && e.Scan == nil:
		return ""
	case a.Failed == 0:
		return fmt.Sprintf("none of %d sites was asked (%s)", a.NotAsked, kinds(a.Refusals, maxKinds))
	default:
		again := ""
		if e.Stored {
			again = "; --restart asks all sites again"
		}
		return fmt.Sprintf("none of %d sites answered (%s); %s%s", a.Failed+a.NotAsked, kinds(a.Failures, maxKinds),
			Suspicion(a.Failures[0].Value), again)
	}
}

// FormFlags are the flags that say how sites are found on lists, or in archives and bodies, which are replayed.
func FormFlags(replayed bool) string {
	if replayed {
		return "--columns"
	}
	return "--format and --column"
}

// maxKinds is how many outcomes a message names.
const maxKinds = 4

// kinds names the first outcomes with their numbers, and counts the others.
func kinds(counts []survey.Count, most int) string {
	var list []string
	rest := int64(0)
	for i, c := range counts {
		if i < most {
			list = append(list, fmt.Sprintf("%s %d", c.Value, c.Rows))
		} else {
			rest += c.Rows
		}
	}
	if rest > 0 {
		list = append(list, fmt.Sprintf("others %d", rest))
	}
	return strings.Join(list, ", ")
}

// Suspicion says where to look when most sites of a scan have the same outcome, other than an answer.
func Suspicion(outcome string) string {
	switch outcome {
	case exchange.DNSNotFound.String():
		return "check that the list has hosts there (--column), and the name servers (--resolver)"
	case exchange.DNSFailed.String(), exchange.DNSTimeout.String():
		return "check the name servers (--resolver) and the network"
	case exchange.TLSFailed.String():
		return "check this machine's clock and root certificates, and for a proxy in between"
	case exchange.BlockedAddress.String():
		return "check the name servers (--resolver): addresses that they give are private"
	case exchange.OptedOut.String():
		return "check --opt-out"
	}
	return "check this machine's network, and for a firewall or proxy in between"
}
