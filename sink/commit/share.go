package commit

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// A scan may be cut into shares, each written by its own process. A share has a shard, named by its number, and a lock.
// The first process creates the manifest, and no process changes it until the shares are collected under the scan's
// lock. This file has the record of a share.

// Share says how far a share of a scan is. Its process writes the record at the start, now and then, and at the end,
// and holds the share's lock meanwhile. Once the state is ShareDone, no process writes the share any more.
type Share struct {
	SchemaVersion   int        `json:"schema_version"`
	ScanID          string     `json:"scan_id"`
	I               int        `json:"share"` // from 0
	N               int        `json:"shares"`
	State           ShareState `json:"state"`
	Reason          string     `json:"reason,omitempty"` // of ShareInterrupted and ShareFailed
	Holder          Holder     `json:"holder"`           // the last process
	Attempt         int        `json:"attempt"`          // how many processes have begun it
	UpdatedAt       time.Time  `json:"updated_at"`
	ToolVersion     string     `json:"tool_version"`
	RegistryVersion string     `json:"registry_version"`
	Check           Check      `json:"check"`
	Inputs          []Input    `json:"inputs"`

	// How far it is. Every share reads the complete list.
	ReadBytes  int64 `json:"list_bytes_read,omitempty"`
	TotalBytes int64 `json:"list_bytes,omitempty"`
	Earlier    int64 `json:"already_kept"` // sites that earlier processes have kept
	Kept       int64 `json:"kept"`         // and this one

	Changes []FileChange `json:"file_changes,omitempty"` // see Manifest

	Result *ShareResult `json:"result,omitempty"` // once done
	Sum    string       `json:"sum,omitempty"`    // see SealRecord
}

// ShareResult has the counts of a share, which collecting adds up.
type ShareResult struct {
	Sites      int64       `json:"sites"`      // committed: one for each origin of the share
	Duplicates int64       `json:"duplicates"` // of origins of the share
	LeftOut    int64       `json:"left_out"`   // by --sample
	Elsewhere  int64       `json:"elsewhere"`  // lines that belong to other shares
	Invalid    int64       `json:"invalid"`    // lines of the complete list without an origin
	Skipped    int64       `json:"skipped"`    // blank lines, comments and headers of the complete list
	Lines      int64       `json:"lines"`      // of the whole list
	Rejects    schema.File `json:"rejects"`
}

// ShareState is how far a share is.
type ShareState string

// The states. A process that was killed leaves ShareRunning.
const (
	ShareRunning     ShareState = "running"
	ShareInterrupted ShareState = "interrupted"
	ShareFailed      ShareState = "failed"
	ShareDone        ShareState = "done"
)

// ShareDoneError says that there is nothing left to do for a share.
type ShareDoneError struct {
	ScanID string
	I, N   int
}

func (e *ShareDoneError) Error() string {
	return fmt.Sprintf("share %d/%d of scan %s is done", e.I, e.N, e.ScanID)
}

// UncollectedError says that a scan is in shares that are not collected yet.
type UncollectedError struct {
	ScanID string
	N      int
}

func (e *UncollectedError) Error() string {
	return fmt.Sprintf(
		"scan %s is in %d shares that are not collected yet; bulkscan status shows them, and bulkscan collect makes one scan of them when all are done", e.ScanID, e.N)
}

// Uncollected reports whether the scan is in shares that may still be written, each under its own lock.
func (m *Manifest) Uncollected() bool { return m.Shares > 0 && m.State != Complete && !m.Repairing }

// Remedy says what to do about damaged records and files of these shards of the scan. Before a scan is collected, each
// share is repaired by itself, under its lock: other shares may be being written.
func (m *Manifest) Remedy(shards ...string) string {
	if !m.Uncollected() {
		return DamageRemedy
	}
	return ShareRemedy(m.ScanID, m.Shares, shards...)
}

// ShareRemedy is the remedy for uncollected shares of a scan in n shares. It names ten shares at most: once they are
// repaired, it names others.
func ShareRemedy(scanID string, n int, shards ...string) string {
	slices.Sort(shards)
	shards = slices.Compact(shards)
	list := strings.Join(shards[:min(10, len(shards))], fmt.Sprintf("/%d --repair, and with --shard ", n))
	return fmt.Sprintf(
		"restore the files that bulkscan verify names; or fetch the lost sites again, with the lists and flags of the other shares: bulkscan scan LIST -o OUT --scan-id %s --shard %s/%d --repair", scanID, list, n)
}

// Remedied adds the remedy to an error about a damaged record of a commit.
func (m *Manifest) Remedied(err error) error {
	shard := ""
	if record, ok := errors.AsType[*recordError](err); ok {
		_, shard = WrittenBy(record.name)
	}
	return Remedied(err, m.Remedy(shard))
}

// HasSites reports whether commits contain each site of the share once.
func (r *ShareResult) HasSites(commits []Commit) bool {
	sites, err := SitesOf(commits)
	return err == nil && CountCommits(commits).Rows == r.Sites && sites.GetCardinality() == uint64(r.Sites)
}

// LockShare locks a share of a scan for this process. A *HeldError describes the process that holds it.
func LockShare(ctx context.Context, st store.Store, scanID, shard string, now time.Time) (store.Unlocker, error) {
	lock, err := takeLock(ctx, st, shareLockName(scanID, shard), scanID, ThisProcess(now, ""))
	if held, ok := errors.AsType[*HeldError](err); ok {
		held.Share = shard
	}
	return lock, err
}

// Write replaces the share's record.
func (s *Share) Write(ctx context.Context, st store.Store) error {
	return WriteRecord(ctx, st.Put, s.name(), s, &s.Sum)
}

// Create writes the share's first record. The error is store.ErrExist if there is one.
func (s *Share) Create(ctx context.Context, st store.Store) error {
	return WriteRecord(ctx, st.CreateIfAbsent, s.name(), s, &s.Sum)
}

func (s *Share) name() string { return ShareName(s.ScanID, strconv.Itoa(s.I)) }

const maxShare = 64 << 20 // as a manifest: both have the names of the lists

// ReadShareRecord reads the record of a share; the error is store.ErrNotExist if no process has begun the share.
func ReadShareRecord(ctx context.Context, st store.Store, scanID, shard string) (*Share, error) {
	name, s := ShareName(scanID, shard), &Share{}
	if err := ReadRecord(ctx, st, name, maxShare, s, &s.Sum); err != nil {
		return nil, err
	}
	if s.ScanID != scanID || strconv.Itoa(s.I) != shard || s.State == ShareDone && s.Result == nil {
		return nil, fmt.Errorf("cannot read %s: %w: its content is that of share %d of scan %.80q, %.20q", name, ErrRecord,
			s.I, s.ScanID, s.State)
	}
	if err := schema.CheckVersion(s.SchemaVersion); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return s, nil
}

// Shares reads the records of the shares that have begun, by their numbers. If some are damaged, it returns the others
// with an ErrRecord.
func Shares(ctx context.Context, st store.Store, m *Manifest) (map[int]*Share, error) {
	scanID := m.ScanID
	var shards []string
	for entry, err := range st.List(ctx, SharesFolder(scanID)) {
		if err != nil {
			return nil, err
		}
		if shard, ok := strings.CutSuffix(path.Base(entry.Name), ".json"); ok && IsRecord(scanID, entry.Name) {
			shards = append(shards, shard)
		}
	}
	read := func(ctx context.Context, shard string) (*Share, error) {
		return ReadShareRecord(ctx, st, scanID, shard)
	}
	all, damaged := map[int]*Share{}, error(nil)
	for shard, r := range store.ReadAhead(ctx, shards, read) {
		switch {
		case errors.Is(r.Err, store.ErrNotExist): // a restart deleted it
		case errors.Is(r.Err, ErrRecord):
			damaged = errors.Join(damaged, Remedied(r.Err, m.Remedy(shard)))
		case r.Err != nil:
			return nil, r.Err
		default:
			all[r.Value.I] = r.Value
		}
	}
	return all, damaged
}
