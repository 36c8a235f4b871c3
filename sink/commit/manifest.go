package commit

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// Manifest describes a scan. It is written at the start, compared on resume, and completed at the end.
type Manifest struct {
	SchemaVersion   int        `json:"schema_version"`
	ScanID          string     `json:"scan_id"`
	State           State      `json:"state"`
	ScanDate        string     `json:"scan_date"` // partition of all its parts
	StartedAt       time.Time  `json:"started_at"`
	ResumedAt       *time.Time `json:"resumed_at,omitempty"` // the last time
	FinishedAt      *time.Time `json:"finished_at,omitempty"`
	ToolVersion     string     `json:"tool_version"`
	OtherTools      []string   `json:"other_tool_versions,omitempty"` // that wrote some parts, with the same schema, registry and check
	RegistryVersion string     `json:"registry_version"`
	Check           Check      `json:"check"`
	Observer        Observer   `json:"observer"`
	ListID          string     `json:"list_id,omitempty"` // which published list, in the user's words
	Tables          []string   `json:"tables"`
	Pruned          []string   `json:"-"` // see Named
	Config          []Setting  `json:"config"`
	Inputs          []Input    `json:"inputs"`
	Shares          int        `json:"shares,omitempty"` // processes write it in so many shares; 0: one process at a time
	Counts          *Counts    `json:"counts,omitempty"` // once complete
	// Ending says how the scan wants to end: published, pending or empty. Once the head names the scan, the head decides.
	Ending Publication `json:"publication,omitempty"`
	// Publication says whether the index, the views and the history have the scan once it is complete (see Head).
	Publication Publication `json:"-"`
	// Recorded lists the files (tables and rejects) that had a FileRecord when the scan became complete. So it shows if
	// such a file and its record were both deleted.
	Recorded []string `json:"recorded_files,omitempty"`
	// Changes are the changes of files that a scan reads again while it runs.
	Changes []FileChange `json:"file_changes,omitempty"`
	// Rejudged is the scan whose stored bodies were re-evaluated; nil if the sites were fetched.
	Rejudged *RejudgedScan `json:"judged_again,omitempty"`
	// Restarting says that the scan's earlier data is being deleted. The next process that opens the scan continues
	// that.
	Restarting bool `json:"restarting,omitempty"`
	// Repairing says that a complete scan has lost data and is fetching it again. It is cleared when the scan is
	// complete again.
	Repairing bool   `json:"repairing,omitempty"`
	Sum       string `json:"sum,omitempty"` // see SealRecord

	named *Named // the head's entry of the scan; nil: none
}

// FileChange says that a file of a scan has changed while the scan ran; the new contents apply from then on.
type FileChange struct {
	At      time.Time `json:"at" about:"RFC 3339"`
	Flag    string    `json:"flag" about:"flag that names the file: opt-out"`
	Added   int       `json:"added,omitempty" about:"sites that are not contacted from then on"`
	Entries int       `json:"entries" about:"entries of the file from then on"`
}

// maxChanges bounds the changes in a record; earlier ones are forgotten.
const maxChanges = 1000

// AddChanges appends changes to a copy of a list, which stays in the order of time.
func AddChanges(list []FileChange, changes ...FileChange) []FileChange {
	list = append(slices.Clone(list), changes...)
	slices.SortStableFunc(list, func(a, b FileChange) int { return a.At.Compare(b.At) })
	return list[max(0, len(list)-maxChanges):]
}

// Check identifies the check that scores the sites, and how their files were read.
type Check struct {
	ID      string `json:"id"`
	Version string `json:"version"`
	Suite   string `json:"suite"`
	Reading int    `json:"reading,omitempty"` // version of what is made of a body; absent for the first
}

// Rules returns the versions of the check and of the reading, `1.0.0` or `1.0.0+2`.
func (c Check) Rules() string {
	if c.Reading == 0 {
		return c.Version
	}
	return fmt.Sprintf("%s+%d", c.Version, c.Reading)
}

func (c Check) String() string { return fmt.Sprintf("%s %s (%s)", c.ID, c.Rules(), c.Suite) }

// WrittenToo notes that a version of bulkscan has written parts of the scan.
func (m *Manifest) WrittenToo(toolVersion string) {
	if toolVersion != m.ToolVersion && !slices.Contains(m.OtherTools, toolVersion) {
		m.OtherTools = append(m.OtherTools, toolVersion)
	}
}

// RejudgedScan describes a scan whose stored bodies are re-evaluated.
type RejudgedScan struct {
	// Fingerprint identifies the scan and its sites. Merging parts does not change it.
	Fingerprint     string    `json:"fingerprint"`
	State           State     `json:"state"`
	Rows            int64     `json:"rows"`
	StartedAt       time.Time `json:"started_at"`
	SchemaVersion   int       `json:"schema_version"`
	ToolVersion     string    `json:"tool_version"`
	RegistryVersion string    `json:"registry_version"`
}

// Identity is the fingerprint, or "" for nil.
func (r *RejudgedScan) Identity() string {
	if r == nil {
		return ""
	}
	return r.Fingerprint
}

// State is how far a scan is.
type State string

// The states.
const (
	Running  State = "running"
	Complete State = "complete"
)

// Publication says whether readers get a scan.
type Publication string

// The publications. See SetPublication for how a scan goes from one to another. The manifest says how the scan ended,
// the head says the rest.
const (
	PublicationPending Publication = "pending"
	PublicationDone    Publication = "published"
	PublicationHeld    Publication = "held" // the scan differs too much from earlier nights; a person decides
	// a person has decided that it does not count; it stays for studies of what went wrong
	PublicationDiscarded Publication = "discarded"
	PublicationEmpty     Publication = "empty" // it has no site, or none answered, and --allow-empty was not given
)

// Published reports whether readers get the scan.
func (m *Manifest) Published() bool {
	return m.State == Complete && !m.Restarting && m.Publication == PublicationDone
}

// Withheld reports whether the scan is complete and readers do not get it.
func (m *Manifest) Withheld() bool { return m.State == Complete && !m.Published() }

// Withholding says in words why readers do not get a complete scan.
func (m *Manifest) Withholding() string {
	if m.Publication == PublicationPending || m.Restarting {
		return "not published"
	}
	return string(m.Publication)
}

// Setting is one value of a scan's configuration, as given.
type Setting struct {
	Name  string `json:"name"` // as the flag is spelled, without dashes
	Value string `json:"value"`
	// Answers says that another value would give other rows (a body limit, a user agent), so a scan cannot be
	// resumed with it. It is false for concurrency, rates and progress.
	Answers bool `json:"changes_answers,omitempty"`
}

// Input describes one list and what identifies it.
type Input struct {
	Name        string `json:"name"`
	Bytes       int64  `json:"bytes,omitempty"` // 0 if unknown
	Fingerprint string `json:"fingerprint"`
}

// String describes the list in an error.
func (in Input) String() string {
	if in.Bytes == 0 {
		return fmt.Sprintf("%s (%.200s)", in.Fingerprint, in.Name)
	}
	return fmt.Sprintf("%s (%.200s, %d bytes)", in.Fingerprint, in.Name, in.Bytes)
}

// Counts are a complete scan's totals.
type Counts struct {
	Rows  int64            `json:"rows"`  // finished origins
	Parts int              `json:"parts"` // commits
	Bytes int64            `json:"bytes"` // of all files
	Files map[string]int64 `json:"table_rows"`
}

// ChangedError says that a scan cannot be resumed because a setting that changes its answers has changed.
type ChangedError struct {
	ScanID string
	What   string // "input", "--max-body", "the token registry" …
	Was    string
	Now    string
	Share  bool // of a scan in shares
}

func (e *ChangedError) Error() string {
	remedy := ChangedRemedy
	if e.Share {
		remedy = "give all shares the same lists and flags, or another --scan-id"
	}
	if e.What == "the check" {
		remedy = "let the bulkscan that began it finish it; or " + remedy
	}
	if e.Share {
		return fmt.Sprintf("cannot write this share of scan %s: %s was %q for the first share and is now %q; %s", e.ScanID,
			e.What, e.Was, e.Now, remedy)
	}
	return fmt.Sprintf("cannot resume scan %s: %s was %q and is now %q; %s", e.ScanID, e.What, e.Was, e.Now, remedy)
}

const maxManifest = 64 << 20

// ReadManifest reads a scan's manifest, with the publication that the head says. The error is store.ErrNotExist if
// there is no such scan, a *schema.NewerError if a later version wrote it, and a *schema.OlderError if an earlier one
// did.
func ReadManifest(ctx context.Context, st store.Store, scanID string) (*Manifest, error) {
	m, err := ReadStoredManifest(ctx, st, scanID)
	if err == nil {
		err = m.current()
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// current returns a *schema.OlderError if an earlier version wrote the manifest.
func (m *Manifest) current() error {
	if m.SchemaVersion < schema.Version {
		return fmt.Errorf("cannot read the manifest of scan %s: %w", m.ScanID, &schema.OlderError{Version: m.SchemaVersion})
	}
	return nil
}

// ReadStoredManifest is ReadManifest for manifests of earlier versions, too.
func ReadStoredManifest(ctx context.Context, st store.Store, scanID string) (m *Manifest, err error) {
	for range 2 { // a scan may be begun anew between the two readings
		h, errHead := ReadHead(ctx, st)
		if errHead != nil {
			return nil, errHead
		}
		if m, err = h.Manifest(ctx, scanID); !errors.Is(err, ErrRecord) {
			break
		}
	}
	return m, err
}

// Manifest is ReadStoredManifest with the publication that this head says.
func (h *Head) Manifest(ctx context.Context, scanID string) (*Manifest, error) {
	m, err := h.AnyManifest(ctx, scanID)
	if err != nil {
		return nil, err
	}
	if err := schema.CheckVersion(m.SchemaVersion); err != nil {
		return nil, fmt.Errorf("cannot read the manifest of scan %s: %w", scanID, err)
	}
	return m, nil
}

// AnyManifest is Manifest for manifests of any version.
func (h *Head) AnyManifest(ctx context.Context, scanID string) (*Manifest, error) {
	m, err := ReadAnyManifest(ctx, h.store, scanID)
	if err != nil {
		return nil, err
	}
	if err := h.place(ctx, m); err != nil {
		return nil, fmt.Errorf("cannot read the manifest of scan %s: %w", scanID, err)
	}
	return m, nil
}

// ReadAnyManifest reads a manifest of any version, without the head's entry.
func ReadAnyManifest(ctx context.Context, st store.Store, scanID string) (*Manifest, error) {
	if err := CheckScanID(scanID); err != nil {
		return nil, err
	}
	data, err := store.ReadAll(ctx, st, ManifestName(scanID), maxManifest)
	if err != nil {
		return nil, fmt.Errorf("cannot read the manifest of scan %s: %w", scanID, err)
	}
	m := &Manifest{}
	if err := OpenRecord(data, m, &m.Sum); err != nil {
		return nil, fmt.Errorf("cannot read the manifest of scan %s: %w", scanID, err)
	}
	if m.ScanID != scanID || CheckDate(m.ScanDate) != nil {
		return nil, fmt.Errorf("cannot read the manifest of scan %s: %w: it names scan %.80q, date %.40q", scanID, ErrRecord,
			m.ScanID, m.ScanDate)
	}
	return m, nil
}

// Write replaces the manifest.
func (m *Manifest) Write(ctx context.Context, st store.Store) error {
	return WriteRecord(ctx, st.Put, ManifestName(m.ScanID), m, &m.Sum)
}

// Create writes the manifest of a new scan. The error is store.ErrExist if the scan has one.
func (m *Manifest) Create(ctx context.Context, st store.Store) error {
	return WriteRecord(ctx, st.CreateIfAbsent, ManifestName(m.ScanID), m, &m.Sum)
}

// Given returns how the user set a flag, or "".
func (m *Manifest) Given(flag string) string {
	i := slices.IndexFunc(m.Config, func(s Setting) bool { return s.Name == flag })
	if i < 0 {
		return ""
	}
	return m.Config[i].Value
}

// ListName is the name that the user gave to the scan's list, else the names of its files.
func (m *Manifest) ListName() string {
	if m.ListID != "" {
		return m.ListID
	}
	var names []string
	for _, in := range m.Inputs {
		names = append(names, path.Base(printable.Line(in.Name)))
	}
	if len(names) > 3 {
		names = append(names[:3], fmt.Sprintf("and %d more", len(names)-3))
	}
	return strings.Join(names, ", ")
}

// Citation cites the scan, as BibTeX. The authors are for the publisher to fill in.
func (m *Manifest) Citation() string {
	digest := ""
	if len(m.Inputs) > 0 {
		digest = ", list " + printable.Head(m.Inputs[0].Fingerprint, 16)
	}
	sites := int64(0)
	if m.Counts != nil {
		sites = m.Counts.Rows
	}
	text := func(s string) string {
		return strings.NewReplacer("`", "'", "{", "", "}", "", `\`, "", "~", "", "^", "", "$", `\$`, "_", `\_`, "%", `\%`,
			"&", `\&`, "#", `\#`).Replace(printable.Clip(s, 100))
	}
	return fmt.Sprintf(`@misc{bulkscan-%s,
  author       = {AUTHORS},
  title        = {robots.txt of %d sites of %s, %s},
  year         = {%s},
  howpublished = {Dataset made with bulkscan %s, https://github.com/bulkscan/bulkscan},
  note         = {Scan %s%s, registry %s, check %s %s, observer %s}
}
`, m.ScanID, sites, text(m.ListName()), m.ScanDate, m.ScanDate[:min(4, len(m.ScanDate))], text(m.ToolVersion), text(m.ScanID), text(digest), text(m.RegistryVersion), text(m.Check.ID), text(m.Check.Version), text(m.Observer.String()))
}

// Package returns the beginning of a description of the scan's tables.
func (m *Manifest) Package(name string) *schema.DataPackage {
	source := fmt.Sprintf("scan %s by bulkscan %s, token registry %s, observer %s", m.ScanID, m.ToolVersion,
		m.RegistryVersion, m.Observer)
	return &schema.DataPackage{
		Schema: "https://datapackage.org/profiles/2.0/datapackage.json", Name: name, Title: "robots.txt of " +
			printable.Head(m.ListName(), 200) + ", " + m.ScanDate, Created: m.StartedAt.UTC().Format(time.RFC3339),
		Sources: []map[string]string{{"title": printable.Head(source, 500)}}, Citation: m.Citation(),
	}
}
