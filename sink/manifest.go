package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/store"
)

// Manifest says what a scan is: written when it starts, compared when it resumes, completed at its end.
type Manifest struct {
	SchemaVersion   int        `json:"schema_version"`
	ScanID          string     `json:"scan_id"`
	State           State      `json:"state"`
	ScanDate        string     `json:"scan_date"` // partition of all its parts
	StartedAt       time.Time  `json:"started_at"`
	ResumedAt       *time.Time `json:"resumed_at,omitempty"` // the last time
	FinishedAt      *time.Time `json:"finished_at,omitempty"`
	ToolVersion     string     `json:"tool_version"`
	RegistryVersion string     `json:"registry_version"`
	Tables          []string   `json:"tables"`
	Config          []Setting  `json:"config"`
	Inputs          []Input    `json:"inputs"`
	Counts          *Counts    `json:"counts,omitempty"` // once complete
	// Recorded are the tables, and the rejects, that had a record of their own when the scan became complete (see FileRecord):
	// that one has been deleted would not show otherwise.
	Recorded []string `json:"recorded_files,omitempty"`
	// Rejudged is the scan whose stored bodies were judged again; nil where sites were asked.
	Rejudged *RejudgedScan `json:"judged_again,omitempty"`
	// Restarting says that what the scan had written before is being deleted. Whoever opens it goes on with that.
	Restarting bool `json:"restarting,omitempty"`
	// Repairing says that the scan was complete, has lost something, and asks that again; until it is complete again.
	Repairing bool   `json:"repairing,omitempty"`
	Sum       string `json:"sum,omitempty"` // see sealRecord
}

// RejudgedScan is a scan whose stored bodies are judged again.
type RejudgedScan struct {
	// Fingerprint tells which sites of which scan they are. It stays what it is when parts are merged.
	Fingerprint     string    `json:"fingerprint"`
	State           State     `json:"state"`
	Rows            int64     `json:"rows"`
	StartedAt       time.Time `json:"started_at"`
	SchemaVersion   int       `json:"schema_version"`
	ToolVersion     string    `json:"tool_version"`
	RegistryVersion string    `json:"registry_version"`
}

// fingerprint is "" where there is none.
func (r *RejudgedScan) fingerprint() string {
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

// Setting is one value of a scan's configuration, as given.
type Setting struct {
	Name  string `json:"name"` // as the flag is spelled, without dashes
	Value string `json:"value"`
	// Answers says that another value would give other rows (a body limit, a user agent), so that a scan cannot be
	// resumed with it. Concurrency, rates and progress are not so.
	Answers bool `json:"changes_answers,omitempty"`
}

// Input is one list, and what tells it from others.
type Input struct {
	Name        string `json:"name"`
	Bytes       int64  `json:"bytes,omitempty"` // 0 where it is not known
	Fingerprint string `json:"fingerprint"`
}

// String is how an Input is told from another in an error.
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

// ChangedError says that a scan cannot be resumed, because what would change its answers has changed.
type ChangedError struct {
	ScanID string
	What   string // "input", "--max-body", "the token registry" …
	Was    string
	Now    string
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("cannot resume scan %s: %s was %q and is now %q; begin it anew with --restart, or give another --scan-id",
		e.ScanID, e.What, e.Was, e.Now)
}

const maxManifest = 64 << 20

// ReadManifest reads a scan's manifest; store.ErrNotExist where there is no such scan, *NewerError where a later version wrote it.
func ReadManifest(ctx context.Context, st store.Store, scanID string) (*Manifest, error) {
	m, err := readManifest(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	if err := checkVersion(m.SchemaVersion); err != nil {
		return nil, fmt.Errorf("cannot read the manifest of scan %s: %w", scanID, err)
	}
	return m, nil
}

// readManifest is ReadManifest of any version.
func readManifest(ctx context.Context, st store.Store, scanID string) (*Manifest, error) {
	if err := CheckScanID(scanID); err != nil {
		return nil, err
	}
	data, err := store.ReadAll(ctx, st, manifestName(scanID), maxManifest)
	if err != nil {
		return nil, fmt.Errorf("cannot read the manifest of scan %s: %w", scanID, err)
	}
	m := &Manifest{}
	if err := openRecord(data, m, &m.Sum); err != nil {
		return nil, fmt.Errorf("cannot read the manifest of scan %s: %w", scanID, err)
	}
	if m.ScanID != scanID || checkDate(m.ScanDate) != nil {
		return nil, fmt.Errorf("cannot read the manifest of scan %s: %w: it names scan %.80q, date %.40q", scanID, errRecord, m.ScanID, m.ScanDate)
	}
	return m, nil
}

func (m *Manifest) write(ctx context.Context, st store.Store) error {
	data, err := sealRecord(m, &m.Sum)
	if err != nil {
		return fmt.Errorf("cannot write the manifest of scan %s: %w", m.ScanID, err)
	}
	return st.Put(ctx, manifestName(m.ScanID), data)
}

// newManifest is the manifest of a scan that starts now.
func newManifest(o *Options, now time.Time) *Manifest {
	return &Manifest{
		SchemaVersion: SchemaVersion, ScanID: o.ScanID, State: Running, ScanDate: o.Date, StartedAt: now,
		ToolVersion: o.ToolVersion, RegistryVersion: o.Registry.Version,
		Tables: o.Tables, Config: o.Config, Inputs: o.Inputs, Rejudged: o.rejudged,
	}
}

// resume checks that a scan may go on as o says, and updates what may change. The date stays that of the first start.
func (m *Manifest) resume(o *Options, now time.Time) error {
	changed := func(what, was, is string) error {
		if was == is {
			return nil
		}
		return &ChangedError{ScanID: m.ScanID, What: what, Was: was, Now: is}
	}
	errs := []error{
		changed("what is judged again", m.Rejudged.fingerprint(), o.rejudged.fingerprint()),
		changed("the schema version", fmt.Sprint(m.SchemaVersion), fmt.Sprint(SchemaVersion)),
		changed("the token registry", m.RegistryVersion, o.Registry.Version),
		changed("the version of bulkscan", m.judgedBy(o), o.ToolVersion),
		changed("--tables", tableSet(m.Tables), tableSet(o.Tables)),
	}
	if len(m.Inputs) != len(o.Inputs) {
		errs = append(errs, changed("the number of inputs", inputNames(m.Inputs), inputNames(o.Inputs)))
	}
	for i := range min(len(m.Inputs), len(o.Inputs)) {
		// A list may be moved or renamed; what counts is what it says.
		if m.Inputs[i].Fingerprint != o.Inputs[i].Fingerprint {
			errs = append(errs, changed(fmt.Sprintf("the fingerprint of input %.200s", o.Inputs[i].Name), m.Inputs[i].String(), o.Inputs[i].String()))
		}
	}
	errs = append(errs, changedSettings(m.Config, o.Config, changed))
	if err := first(errs); err != nil {
		return err
	}
	m.ToolVersion, m.Config, m.Inputs, m.Rejudged = o.ToolVersion, o.Config, o.Inputs, o.rejudged
	m.ResumedAt = &now
	return nil
}

// judgedBy is the version that a scan may go on with. One whose sites are asked may go on with any; where stored ones are judged
// again, what differs would be by the rules of two, and those of one would not be told.
func (m *Manifest) judgedBy(o *Options) string {
	if o.rejudged == nil {
		return o.ToolVersion
	}
	return m.ToolVersion
}

// tableSet lists tables in the order of AllTables: in which order they were asked for changes nothing.
func tableSet(tables []string) string {
	var in []string
	for _, table := range AllTables {
		if slices.Contains(tables, table) {
			in = append(in, table)
		}
	}
	return strings.Join(in, ",")
}

// inputNames says how many inputs there are, and which are the first.
func inputNames(inputs []Input) string {
	const shown = 5
	names := make([]string, 0, shown+1)
	for i, in := range inputs {
		if i == shown {
			names = append(names, "…")
			break
		}
		names = append(names, fmt.Sprintf("%.200s", in.Name))
	}
	return fmt.Sprintf("%d (%s)", len(inputs), strings.Join(names, ", "))
}

// changedSettings compares the settings that change answers; one that only one side has counts as "" on the other.
func changedSettings(was, now []Setting, changed func(what, was, is string) error) error {
	value := func(settings []Setting, name string) string {
		for _, s := range settings {
			if s.Name == name {
				return s.Value
			}
		}
		return ""
	}
	for _, s := range slices.Concat(was, now) {
		if s.Answers {
			if err := changed("--"+s.Name, value(was, s.Name), value(now, s.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func first(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// loadManifest reads the manifest of the scan to write, or begins one.
func loadManifest(ctx context.Context, st store.Store, o *Options, now time.Time) (*Manifest, error) {
	m, err := ReadManifest(ctx, st, o.ScanID)
	if _, newer := errors.AsType[*NewerError](err); newer {
		return nil, err // also where it is to be begun anew: nobody knows what else belongs to it
	}
	switch {
	case o.Repair && errors.Is(err, store.ErrNotExist):
		return nil, fmt.Errorf("nothing to repair: there is no scan %s; --scan-id names the one that is meant", o.ScanID)
	case o.Repair && err == nil && m.Restarting:
		return nil, fmt.Errorf("nothing to repair: scan %s is being begun anew, and that was broken off; the same command without --repair goes on with it", o.ScanID)
	case errors.Is(err, store.ErrNotExist) && !o.Restart:
		return newManifest(o, now), nil
	}
	if o.Restart || err == nil && m.Restarting {
		// Of those that are judged again only what was made by that is deleted: nobody could ask the sites of another scan again, which
		// may be the one that is read.
		if err == nil && o.rejudged != nil && (m.Rejudged == nil || m.StartedAt.Equal(o.rejudged.StartedAt)) {
			return nil, fmt.Errorf("cannot judge scan %s again into this dataset: the scan of that name there is not one that can be made again, and is not deleted; give another place", o.ScanID)
		}
		// A manifest that cannot be read goes like the rest.
		m = newManifest(o, now)
		m.Restarting = true
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	if err := m.resume(o, now); err != nil {
		return nil, err
	}
	return m, nil
}
