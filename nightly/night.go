package nightly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey/diff"
)

// Names in a dataset. The files of a night are in a folder of its date.
const (
	Folder     = "_nights/"
	recordName = "night.json"
	lockName   = Folder + "lock"

	reportName  = "report.html"
	summaryName = "summary.json"
	changesName = "changes.json"
)

// LatestReport and LatestSummary are copies of the report and the summary of the newest published night.
const (
	LatestReport  = reportName
	LatestSummary = summaryName
)

// State is the state of a night.
type State string

// The states.
const (
	Running    State = "running"    // or killed; then the next run continues it
	Published  State = "published"  // it counts
	Held       State = "held"       // too different from the nights before: a person releases or discards it
	Discarded  State = "discarded"  // it does not count
	Incomplete State = "incomplete" // the deadline came before the end of the list
	Failed     State = "failed"     // an error ended it; a run of the same night continues it
)

// final reports whether no run continues the night.
func (s State) final() bool { return s == Published || s == Held || s == Discarded }

// Night is the record of a night, replaced after each of its steps. Programs rely on its JSON; docs/FIELDS.md describes
// it.
type Night struct {
	SchemaVersion int        `json:"schema_version" about:"of tables"`
	Date          string     `json:"date" about:"YYYY-MM-DD; also scan_date"`
	ScanID        string     `json:"scan_id" about:"scan"`
	State         State      `json:"state" about:"how the night ended, or how far it is; see docs/nightly.md"`
	StartedAt     time.Time  `json:"started_at" about:"RFC 3339"`
	EndedAt       *time.Time `json:"ended_at,omitempty" about:"RFC 3339"`
	Until         *time.Time `json:"until,omitempty" about:"deadline of its scan, RFC 3339"`
	Runs          int        `json:"runs" about:"runs of the command; more than 1 after a crash, a reboot or an interrupt"`
	ToolVersion   string     `json:"tool_version" about:"last writer"`
	List          *List      `json:"list,omitempty" about:"list of the night"`
	Error         string     `json:"error,omitempty" about:"what ended it, at most 500 bytes"`
	DoubtedAfter  string     `json:"doubted_after,omitempty" about:"where the date is in doubt: date of the last night whose date is in no doubt"`

	Figures    *Figures            `json:"figures,omitempty" about:"numbers of sites, by which the night is judged"`
	Bytes      int64               `json:"bytes,omitempty" about:"of the files of the scan"`
	Out        []Check             `json:"out_of_bounds,omitempty" about:"figures out of their bounds"`
	Changes    *Changes            `json:"changes,omitempty" about:"differences from the published night before"`
	Pruned     *scan.Prunings      `json:"pruned,omitempty" about:"what was deleted for its age, after this night was published"`
	PruneError string              `json:"prune_error,omitempty" about:"why nothing was deleted: more than half was due"`
	Files      []schema.File       `json:"files,omitempty" about:"files beside this record"`
	Reread     []commit.FileChange `json:"file_changes,omitempty" about:"changes of files that were read again while the scan ran"`

	Sum string `json:"sum,omitempty" about:"SHA-256 of the record without this field"`
}

// List is the list of a night.
type List struct {
	Source  string `json:"source" about:"as configured, without a password"`
	Name    string `json:"name" about:"copy beside the record, which is deleted after the night"`
	Bytes   int64  `json:"bytes" about:"of the list"`
	SHA256  string `json:"sha256" about:"of the list"`
	Entries int64  `json:"entries" about:"sites of the list"`
}

// Changes are the differences of a night from the published night before.
type Changes struct {
	From     string       `json:"from" about:"date of the night before"`
	Appeared int64        `json:"appeared" about:"sites of this night only"`
	Vanished int64        `json:"vanished" about:"sites of the night before only"`
	Changed  int64        `json:"changed_sites" about:"sites that began or ceased to block a token"`
	Tokens   []diff.Token `json:"tokens" about:"the five most changed tokens, the most changed first"`
}

const maxTokens = 5

func folderOf(date string) string { return Folder + date + "/" }

// scanOf returns the id of the scan of a date's night.
func scanOf(date string) string { return "night-" + date }

func (n *Night) name() string { return folderOf(n.Date) + recordName }

// Note says in a line why a night does not count, or why nothing was pruned after it; "" if neither is so.
func (n *Night) Note() string {
	if n.State == Held && len(n.Out) > 0 {
		return n.Out[0].String()
	}
	return cmp.Or(n.Error, n.PruneError)
}

// ReadNight reads the record of a night. The error is store.ErrNotExist if there is none.
func ReadNight(ctx context.Context, st store.Store, date string) (*Night, error) {
	name := folderOf(date) + recordName
	n := &Night{}
	data, err := store.ReadAll(ctx, st, name, schema.MaxCommit)
	if err == nil {
		err = commit.OpenRecord(data, n, &n.Sum)
	}
	if err == nil {
		err = schema.CheckVersion(n.SchemaVersion)
	}
	if err == nil && n.Date != date {
		err = fmt.Errorf("%w: it is that of %.40q", commit.ErrRecord, n.Date)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return n, nil
}

func (n *Night) write(ctx context.Context, st store.Store) error {
	data, err := commit.SealRecord(n, &n.Sum)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", n.name(), err)
	}
	return st.Put(ctx, n.name(), data)
}

// dates lists the dates that have a file of a night, in order. A record that is no regular file may not be listed.
func dates(ctx context.Context, st store.Store) (list []string, err error) {
	for entry, err := range st.List(ctx, Folder) {
		if err != nil {
			return nil, fmt.Errorf("cannot find the nights: %w", err)
		}
		date, _, ok := strings.Cut(strings.TrimPrefix(entry.Name, Folder), "/")
		if (ok || entry.Size == store.Irregular) && commit.CheckDate(date) == nil {
			list = append(list, date)
		}
	}
	return slices.Compact(list), nil
}

// recent is how many nights are searched for the last published one.
const recent = 60

// Nights reads the records of the last nights, at most so many (0: all), the newest last.
func Nights(ctx context.Context, st store.Store, most int) (list []*Night, err error) {
	all, err := dates(ctx, st)
	if err != nil {
		return nil, err
	}
	for _, date := range slices.Backward(all) {
		if most > 0 && len(list) == most {
			break
		}
		n, err := ReadNight(ctx, st, date)
		if errors.Is(err, store.ErrNotExist) {
			continue // a file of another program
		}
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	slices.Reverse(list)
	return list, nil
}

// doubt returns the date of the last sure night if date is too many days after it, else "". It allows the median of the
// days between sure nights, once for tonight and once for each doubted night since. The median includes one day.
func doubt(nights []*Night, date string, now time.Time) (after string) {
	apart, since := []float64{1}, 1.0
	for _, n := range nights {
		switch {
		case n.sure() && n.Date <= date:
			if after != "" {
				apart = append(apart, days(after, n.Date))
			}
			after, since = n.Date, 1
		case !n.sure() && n.DoubtedAfter >= after && (n.Date != date || n.refuted(nights, now)):
			after = n.DoubtedAfter
			since++
		}
	}
	if after == "" || days(after, date) <= since*median(apart) {
		return ""
	}
	return after
}

func days(from, to string) float64 {
	first, _ := time.Parse(time.DateOnly, from) // records have dates
	last, _ := time.Parse(time.DateOnly, to)
	return last.Sub(first).Hours() / 24
}

// late says that a date is in doubt.
func late(after, date string) Check { return Check{Figure: dateFigure, Share: days(after, date)} }

// sure reports whether the date of a night is in no doubt, or a person has accepted it.
func (n *Night) sure() bool { return n.DoubtedAfter == "" || n.State == Published }

func (n *Night) endedAfter(now time.Time) bool { return n.EndedAt != nil && n.EndedAt.After(now) }

// refuted reports whether a scan of a date in doubt was made under a wrong clock: a person has discarded it, or its end
// is later than now, or a night made since then has an earlier date.
func (n *Night) refuted(nights []*Night, now time.Time) bool {
	since := func(other *Night) bool {
		return other.DoubtedAfter == "" && other.Date > n.DoubtedAfter && other.Date < n.Date
	}
	return !n.sure() && n.List != nil && (n.State == Discarded || n.endedAfter(now) || slices.ContainsFunc(nights, since))
}

// Verify compares the records of all nights, and the files that they name, with their hashes.
func Verify(ctx context.Context, st store.Store, report func(verify.Finding)) error {
	all, err := dates(ctx, st)
	if err != nil {
		return err
	}
	head, errHead := commit.ReadHead(ctx, st)       // a damaged head is reported with the heads
	publications := map[string]commit.Publication{} // by scan
	pruned := &commit.Pruned{}
	if errHead == nil {
		named, _ := head.All(ctx)
		for _, s := range named {
			publications[s.ScanID] = s.Publication
		}
		pruned, errHead = head.ReadPruned(ctx)
	}
	for _, date := range all {
		n, err := ReadNight(ctx, st, date)
		newer, isNewer := errors.AsType[*schema.NewerError](err)
		switch name := folderOf(date) + recordName; {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, store.ErrNotExist):
			if publications[scanOf(date)] == commit.PublicationDone { // else the night begins, or was pruned or withdrawn
				report(verify.Finding{Kind: verify.Damaged, File: name,
					What: "it is missing, and the night's scan counts; restore it, or delete what is left in " + folderOf(date)})
			}
			continue
		case isNewer:
			report(verify.Finding{Kind: verify.Newer, File: name, What: newer.Error()})
			continue
		case err != nil:
			report(verify.Finding{Kind: verify.Damaged, File: name, What: strings.TrimPrefix(err.Error(), "cannot read "+name+
				": ")})
			continue
		}
		if n.State == Published && errHead == nil && head.Number > 0 && !pruned.Has(n.ScanID) &&
			publications[n.ScanID] == "" {
			report(verify.Finding{Kind: verify.Damaged, File: n.name(),
				What: "it says that the night is published, and no head names its scan; bulkscan nightly --release " + date +
					" publishes it"})
		}
		for _, f := range n.Files {
			if err := verifyFile(ctx, st, n, f, report); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyFile compares a file with its hash. A run may replace both meanwhile.
func verifyFile(ctx context.Context, st store.Store, n *Night, f schema.File, report func(verify.Finding)) error {
	finding := verify.Finding{Kind: verify.Damaged, File: f.Name, What: "sha256", Expected: f.SHA256}
	switch data, err := store.ReadAll(ctx, st, f.Name, maxFile); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		finding.What, finding.Expected = err.Error(), ""
	case schema.SumOf(data) == f.SHA256:
		return nil
	default:
		finding.Found = schema.SumOf(data)
	}
	if now, err := ReadNight(ctx, st, n.Date); err == nil && now.Sum != n.Sum {
		return nil
	}
	report(finding)
	return nil
}

// maxFile bounds the files beside a record, in bytes.
const maxFile = 256 << 20

// changesOf returns the changes of a comparison that messages show.
func changesOf(d *diff.Diff) *Changes {
	c := &Changes{From: d.From.ScanDate, Appeared: d.Appeared, Vanished: d.Vanished, Changed: d.Changed}
	c.Tokens = slices.Clone(d.Tokens)
	slices.SortStableFunc(c.Tokens, func(a, b diff.Token) int {
		return cmp.Compare(b.Began+b.Ceased, a.Began+a.Ceased)
	})
	c.Tokens = c.Tokens[:min(len(c.Tokens), maxTokens)]
	return c
}
