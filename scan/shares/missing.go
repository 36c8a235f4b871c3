package shares

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/sink/commit"
)

// NotDoneError names the shares of a scan that are not done.
type NotDoneError struct {
	ScanID string
	N      int
	Shares []int
}

func (e *NotDoneError) Error() string {
	list := Ranges(e.Shares)
	what := "shares " + list + " are"
	if len(e.Shares) == 1 {
		what = "share " + list + " is"
	}
	return fmt.Sprintf("of %d shares of scan %s, %s not done. Run just these, with the lists and flags of the others: "+
		"bulkscan scan LIST -o OUT --scan-id %s --shard %d/%d; on Slurm: sbatch --array=%s --export=ALL,%s=%d,BULKSCAN_SCAN_ID=%s JOB",
		e.N, e.ScanID, what, e.ScanID, e.Shares[0], e.N, list, CountVariable, e.N, e.ScanID)
}

// Ranges writes ascending numbers as Slurm does: 0-3,7.
func Ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := strconv.Itoa(numbers[i])
		if j > i {
			part += "-" + strconv.Itoa(numbers[j])
		}
		parts, i = append(parts, part), j+1
	}
	return strings.Join(parts, ",")
}

// NotDone returns the shares of a scan that are not done, by the records of those that have begun.
func NotDone(m *commit.Manifest, records map[int]*commit.Share) (missing []int) {
	for i := range m.Shares {
		if s := records[i]; s == nil || s.State != commit.ShareDone {
			missing = append(missing, i)
		}
	}
	return missing
}

// Check returns an error unless the records show that the shares make up the scan: all are done, of the same lists, by
// the same schema, registry and check, and each line of the lists is in exactly one share. The version of bulkscan may
// differ.
func Check(m *commit.Manifest, records map[int]*commit.Share) error {
	if missing := NotDone(m, records); len(missing) > 0 {
		return &NotDoneError{m.ScanID, m.Shares, missing}
	}
	var all, first commit.ShareResult
	var unlike []int
	var why error // of the first
	for _, i := range slices.Sorted(maps.Keys(records)) {
		if err := alike(m, records[i]); err != nil {
			unlike, why = append(unlike, i), cmp.Or(why, err)
		}
	}
	if why != nil {
		return fmt.Errorf("cannot collect scan %s: of shares %s, share %d %w; scan anew with another --scan-id", m.ScanID,
			Ranges(unlike), unlike[0], why)
	}
	for _, i := range slices.Sorted(maps.Keys(records)) {
		r := *records[i].Result
		if i == 0 {
			first = r
		}
		if r.Lines != first.Lines || r.Invalid != first.Invalid || r.Skipped != first.Skipped {
			return fmt.Errorf(
				"cannot collect scan %s: share 0 has read %d lines, %d without an origin and %d to be skipped, and share %d %d, %d and %d: they did not read the same list in the same way; scan anew with another --scan-id",
				m.ScanID, first.Lines, first.Invalid, first.Skipped, i, r.Lines, r.Invalid, r.Skipped)
		}
		all.Sites += r.Sites
		all.Duplicates += r.Duplicates
		all.LeftOut += r.LeftOut
	}
	if found := all.Sites + all.Duplicates + all.LeftOut + first.Invalid + first.Skipped; found != first.Lines {
		return fmt.Errorf(
			"cannot collect scan %s: its shares account for %d lines of a list of %d; scan anew with another --scan-id",
			m.ScanID, found, first.Lines)
	}
	return nil
}

// alike compares a share with the manifest.
func alike(m *commit.Manifest, s *commit.Share) error {
	fingerprints := func(inputs []commit.Input) (all []string) {
		for _, in := range inputs {
			all = append(all, in.Fingerprint)
		}
		return all
	}
	switch {
	case s.N != m.Shares || s.I >= m.Shares:
		return fmt.Errorf("is of %d shares, and the scan of %d", s.N, m.Shares)
	case !slices.Equal(fingerprints(s.Inputs), fingerprints(m.Inputs)):
		return errors.New("has read other lists")
	case s.SchemaVersion != m.SchemaVersion:
		return fmt.Errorf("is of schema version %d, and the scan of %d", s.SchemaVersion, m.SchemaVersion)
	case s.RegistryVersion != m.RegistryVersion:
		return fmt.Errorf("was judged by token registry %.80q, and the scan by %.80q", s.RegistryVersion, m.RegistryVersion)
	case s.Check != m.Check:
		return fmt.Errorf("was judged by check %.80q, and the scan by %.80q", s.Check, m.Check)
	}
	return nil
}
