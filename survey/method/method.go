// Package method answers one question: how was a dataset made? It says which sites were fetched, by whom and when, what
// the figures mean, what they do not say, and how to cite them, for the report page and the README.md of the dataset.
package method

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
)

// ReadmeName is the name of the file in the root of a dataset.
const ReadmeName = "README.md"

// readmeMark begins a README that bulkscan may replace. Any other README is a person's, and stays.
const readmeMark = "<!-- bulkscan writes this file when a scan is complete. Without this line it stays as it is. -->\n"

const (
	maxReadme = 1 << 20 // bytes of a README that may be replaced
	shownScan = 20      // scans that are listed
)

// Section is one section of a method. Its texts are Markdown of ours; texts from a manifest or a dataset are marked as
// code.
type Section struct {
	Title string
	Text  []string   // paragraphs
	List  []string   // after the paragraphs
	Table [][]string // after the list; the first row is the header
	Code  string     // after the table; it has no backtick
}

// errNoScan says that a dataset has no default scan.
var errNoScan = fmt.Errorf("no scan is published: %w", store.ErrNotExist)

// WriteReadme writes the README of a dataset from its manifests and its default scan, unless a person's is there. Once
// no scan is published any more, it deletes the README.
func WriteReadme(ctx context.Context, st store.Store) error {
	before, err := store.ReadAll(ctx, st, ReadmeName, maxReadme)
	if err == nil && !bytes.HasPrefix(before, []byte(readmeMark)) {
		return nil
	}
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("cannot write %s: %w", ReadmeName, err)
	}
	sections, err := Of(ctx, st, "", survey.Options{})
	if err == errNoScan {
		return st.Delete(ctx, ReadmeName)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", ReadmeName, err)
	}
	text := markdown(sections)
	if bytes.Equal(text, before) {
		return nil
	}
	// A killed process may have left a draft. A scan that ends at the same time may delete our draft, but writes the same
	// text.
	if err := commit.SweepFiles(ctx, st, ReadmeName); err != nil {
		return err
	}
	if err := st.Put(ctx, ReadmeName, text); err != nil && !errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("cannot write %s: %w", ReadmeName, err)
	}
	return nil
}

// Of describes a dataset. Its figures are of one scan, read with the options. The scan "" is the default one;
// without a default the error is store.ErrNotExist, or that of scans whose manifests cannot be read.
func Of(ctx context.Context, st store.Store, scanID string, o survey.Options) ([]Section, error) {
	var more []string // scans that the head may not name: without an index all
	for row, err := range index.Rows(ctx, st) {
		if err != nil {
			if more, err = commit.ScanIDs(ctx, st); err != nil {
				return nil, err
			}
			break
		}
		if !row.Complete {
			more = append(more, row.ScanID)
		}
	}
	if scanID != "" {
		more = append(more, scanID)
	}
	all, err := commit.LastScans(ctx, st, shownScan+1, more...)
	if damaged := (*commit.DamagedScansError)(nil); err != nil && !errors.As(err, &damaged) {
		return nil, err
	}
	var of *commit.Manifest
	usual := commit.Default(all)
	// among scans of one date, the last started is last
	slices.SortStableFunc(all, func(a, b *commit.Manifest) int { return strings.Compare(a.ScanDate, b.ScanDate) })
	for _, m := range all {
		if scanID == m.ScanID || scanID == "" && (m == usual || usual == nil && m.Published()) {
			of = m
		}
	}
	if of == nil {
		return nil, cmp.Or(err, errNoScan) // it may be among the damaged ones
	}
	sections := []Section{aboutDataset(of), listOf(of), askedHow(of)}
	if slices.Contains(of.Tables, schema.Sites) {
		seen, err := coverage(ctx, st, of.ScanID, o)
		if err != nil {
			return nil, err
		}
		sections = append(sections, seen)
	}
	pruned, err := commit.ReadPruned(ctx, st)
	if err != nil {
		return nil, err
	}
	return append(sections, meanings(), limits(), scansOf(all, pruned.Through), citation(of)), nil
}

func aboutDataset(m *commit.Manifest) Section {
	return Section{
		Title: "robots.txt of " + code(m.ListName()) + ", " + m.ScanDate,
		Text: []string{
			"This folder is a dataset of [bulkscan](https://github.com/bulkscan/bulkscan): for every site of a list what its `/robots.txt` said, and which crawlers it blocks. " +
				"What follows describes the newest published scan; the others are listed below.",
			"`duckdb -cmd '.read views.sql'`, started here, has the tables; `bulkscan schema` says what a column means, `bulkscan summary .` prints the headline figures, and `bulkscan verify .` whether every byte is there.",
		},
	}
}

func listOf(m *commit.Manifest) Section {
	s := Section{Title: "List", Table: [][]string{{"list", "bytes", "fingerprint (SHA-256 of the SHA-256 of the file)"}}}
	if m.ListID != "" {
		s.Text = append(s.Text, "Published as "+code(m.ListID)+".")
	}
	if len(m.Inputs) > shownScan {
		s.Text = append(s.Text, fmt.Sprintf("%d files, of which the first are:", len(m.Inputs)))
	}
	for _, in := range m.Inputs[:min(len(m.Inputs), shownScan)] {
		s.Table = append(s.Table, []string{code(path.Base(in.Name)), fmt.Sprint(in.Bytes), code(in.Fingerprint)})
	}
	return s
}

// askedHow says who fetched the sites, and with which settings.
func askedHow(m *commit.Manifest) Section {
	o := m.Observer
	s := Section{Title: "How it was seen"}
	from := "an unnamed place"
	if o.Vantage != "" {
		from = code(o.Vantage)
	}
	switch o.Source {
	case commit.Live:
		s.Text = []string{fmt.Sprintf(
			"The sites were asked from %s by a crawler that calls itself %s, over %s, addresses %s, schemes %s. Sites may answer differently to another one: scans of two observers are not comparable without saying so.",
			from, code(o.Product), code(o.HTTP), code(o.Family), code(o.Scheme))}
		for _, flag := range []string{"host-rate", "ip-rate", "timeout", "retries", "max-redirects", "max-body"} {
			if value := m.Given(flag); value != "" {
				s.List = append(s.List, code("--"+flag+" "+value))
			}
		}
	case commit.Archive:
		s.Text = []string{"Nobody was asked: the captures of an archive were judged. What they show is what the archive's crawler was shown."}
	default:
		s.Text = []string{"Who asked is not recorded."}
	}
	state := fmt.Sprintf("It began at %s", m.StartedAt.UTC().Format("2006-01-02 15:04 UTC"))
	if m.FinishedAt != nil {
		state += fmt.Sprintf(" and was complete at %s", m.FinishedAt.UTC().Format("2006-01-02 15:04 UTC"))
	}
	s.Text = append(s.Text, fmt.Sprintf("%s. bulkscan %s, token registry %s, check %s %s (suite %s), schema version %d.",
		state, code(m.ToolVersion), code(m.RegistryVersion), code(m.Check.ID), code(m.Check.Version), code(m.Check.Suite),
		m.SchemaVersion))
	if m.Rejudged != nil {
		s.Text = append(s.Text, fmt.Sprintf("The stored files of a scan by bulkscan %s, registry %s, were judged again.",
			code(m.Rejudged.ToolVersion), code(m.Rejudged.RegistryVersion)))
	}
	return s
}

// coverage counts the findings of a scan's sites.
func coverage(ctx context.Context, st store.Store, scanID string, o survey.Options) (Section, error) {
	c := Section{Title: "Coverage",
		Text: []string{"What was seen, in one word a site (`sites.finding`). Shares of who blocks are over sites with `rules` unless a figure says otherwise."}}
	scan, err := o.Open(ctx, st, scanID)
	if err != nil {
		return c, err
	}
	if n := len(scan.Read()); n > 1 {
		c.Text = append(c.Text, fmt.Sprintf("Each site of the %d scans of this date, observer and list counts once.", n))
	}
	var finding string
	var status int32
	var sites, answered int64
	findings := survey.Counts{}
	fields := []table.Field{{Name: "finding", Into: &finding}, {Name: "status", Into: &status}}
	err = survey.EachSite(ctx, scan, fields, func() {
		sites++
		answered += survey.One(status != 0)
		findings.Add(finding)
	})
	percent := func(n int64) string {
		if sites == 0 {
			return "n/a"
		}
		return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(sites))
	}
	c.Table = [][]string{{"finding", "sites", "of those listed"}, {"listed", fmt.Sprint(sites), "100 %"},
		{"answered with an HTTP status", fmt.Sprint(answered), percent(answered)}}
	for _, f := range findings.Ordered() {
		c.Table = append(c.Table, []string{code(f.Value), fmt.Sprint(f.Rows), percent(f.Rows)})
	}
	return c, err
}

func meanings() Section {
	s := Section{Title: "What \"blocks\" means",
		Text: []string{"Six definitions are in use; every figure names its own. The default is `full`. The registry of tokens says whose crawler a token is, and which group it follows where no group names it."}}
	for _, d := range survey.Definitions() {
		over := "sites with rules"
		if d.Answered() {
			over = "sites that answered"
		}
		s.List = append(s.List, fmt.Sprintf("`%s`: %s Over %s.", d.Name, d.Question, over))
	}
	return s
}

func limits() Section {
	return Section{Title: "Limitations", List: []string{
		"A robots.txt asks; it does not enforce. A site may refuse a crawler by other means, and a crawler may not obey.",
		"What our crawler was shown may not be what others are shown. " + survey.Unread,
		"A site is a host of the list. Several hosts of one owner count several times (view `domains`), and so do copies of one file.",
		"The number of sites that block at least one crawler grows with the registry: compare only figures of one version, or of a fixed set of tokens.",
		"Files are read as Google's parser does: `bulkscan summary --sensitivity TOKEN` says how much that, and every other choice, matters.",
		"A list is no sample of the web. Its ranks are its publisher's.",
	}}
}

func scansOf(all []*commit.Manifest, pruned string) Section {
	s := Section{Title: "Scans", Table: [][]string{{"scan", "date", "state", "sites", "list", "observer", "bulkscan",
		"registry"}}}
	if len(all) > shownScan {
		s.Text = []string{fmt.Sprintf("The last %d scans are listed; the view `scans` has all.", shownScan)}
	}
	if pruned != "" {
		s.Text = append(s.Text, "The nights up to "+pruned+" were pruned: the history has them, and no table of scans does.")
	}
	for i := len(all) - 1; i >= max(0, len(all)-shownScan); i-- {
		m := all[i]
		sites := ""
		if m.Counts != nil {
			sites = fmt.Sprint(m.Counts.Rows)
		}
		s.Table = append(s.Table, []string{code(m.ScanID), m.ScanDate, code(string(m.State)), sites, code(m.ListName()),
			code(m.Observer.String()), code(m.ToolVersion), code(m.RegistryVersion)})
	}
	return s
}

func citation(m *commit.Manifest) Section {
	return Section{
		Title: "How to cite",
		Text:  []string{"Name the scan, its date, the list, the observer, and the versions of bulkscan and of the registry; with a share its definition and denominator. The authors are those who publish the dataset, and its licence is theirs to choose: `licenses` and `contributors` that they write into `" + schema.PackageName + "` stay there."},
		Code:  m.Citation(),
	}
}

// maxCode bounds a text that may be anybody's, in bytes.
const maxCode = 100

// code writes a text that may be anybody's as Markdown code, also in a table. Only a backtick ends code, and within it
// neither Markdown nor HTML counts.
func code(text string) string {
	text = strings.NewReplacer("`", "'", "|", "/").Replace(printable.Clip(text, maxCode))
	return "`" + cmp.Or(strings.TrimSpace(text), "–") + "`"
}

// markdown writes the sections as a page.
func markdown(sections []Section) []byte {
	var b bytes.Buffer
	b.WriteString(readmeMark)
	for i, s := range sections {
		level := "##"
		if i == 0 {
			level = "#"
		}
		fmt.Fprintf(&b, "\n%s %s\n", level, s.Title)
		for _, text := range s.Text {
			fmt.Fprintf(&b, "\n%s\n", text)
		}
		for i, item := range s.List {
			if i == 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "- %s\n", item)
		}
		for i, row := range s.Table {
			if i == 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
			}
		}
		if s.Code != "" {
			fmt.Fprintf(&b, "\n```bibtex\n%s```\n", s.Code)
		}
	}
	return b.Bytes()
}
