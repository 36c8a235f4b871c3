package sink_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/internal/store/storetest"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/views"
)

// contents returns the rows of a scan by table, in an order that does not depend on the division into parts.
func contents(st store.Store) (map[string][]string, error) {
	ctx := context.Background()
	scan, err := commit.ReadScan(ctx, st, diskScan)
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	// Committed tables must be readable in every state. The other tables exist only if the scan is complete.
	err = errors.Join(
		tableRows[schema.SiteRow](all, scan, schema.Sites), tableRows[schema.VerdictRow](all, scan, schema.Verdicts),
		tableRows[schema.EvidenceRow](all, scan, schema.Evidence), tableRows[schema.BodyRow](all, scan, schema.Bodies))
	all[schema.Bodies] = slices.Compact(all[schema.Bodies]) // once for each part
	if err != nil || scan.Manifest.State != commit.Complete {
		return all, err
	}
	all["rows"] = []string{fmt.Sprint(scan.Manifest.Counts.Rows, scan.Manifest.Counts.Files[schema.Verdicts])}
	rejects, err := store.ReadAll(ctx, st, "_rejects/"+diskScan+".jsonl", 1<<20)
	all["rejects"] = []string{string(rejects)}
	return all, errors.Join(err, statsRows[schema.TokenStatsRow](all, scan, st, schema.TokenStats), statsRows[schema.RecordStatsRow](all, scan, st, schema.RecordStats))
}

func tableRows[T any](all map[string][]string, scan *commit.Scan, table string) error {
	for row, err := range sink.Rows[T](context.Background(), scan, table) {
		if err != nil {
			return err
		}
		if err := appendRow(all, table, row); err != nil {
			return err
		}
	}
	slices.Sort(all[table])
	return nil
}

func statsRows[T any](all map[string][]string, scan *commit.Scan, st store.Store, tableName string) error {
	for row, err := range table.FileRows[T](context.Background(), st, commit.StatsName(tableName, scan.Manifest.ScanDate, diskScan)) {
		if err != nil {
			return err
		}
		if err := appendRow(all, tableName, row); err != nil {
			return err
		}
	}
	slices.Sort(all[tableName])
	return nil
}

func appendRow(all map[string][]string, table string, row any) error {
	text, err := json.Marshal(row)
	all[table] = append(all[table], string(text))
	return err
}

// difference names the tables in which two contents differ, or returns "".
func difference(got, want map[string][]string) string {
	var texts []string
	for table := range want {
		if !reflect.DeepEqual(got[table], want[table]) {
			texts = append(texts, fmt.Sprintf("%s: %d rows, want %d", table, len(got[table]), len(want[table])))
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}

// leftovers returns files of a complete scan that no commit names, including temporary ones.
func leftovers(disk *storetest.Disk, st store.Store) ([]string, error) {
	commits, err := commit.Commits(context.Background(), st, diskScan)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, c := range commits {
		for _, f := range c.Files {
			named[f.Name] = true
		}
	}
	var left []string
	err = disk.Walk("/data/out", func(p string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := strings.TrimPrefix(strings.ReplaceAll(p, `\`, "/"), "/data/out/")
		table, _, _ := strings.Cut(name, "/")
		info, err := entry.Info()
		if path.Base(name)[0] == '.' || slices.Contains(schema.AllTables, table) && !named[name] || info.Size() == 0 {
			left = append(left, name)
		}
		return err
	})
	return left, err
}

// undisturbed returns the result of a scan without accidents, and its calls.
func undisturbed(t *testing.T, sites []*audit.Site) (want map[string][]string, calls []storetest.Call) {
	t.Helper()
	disk := storetest.NewDisk()
	if err := scanDisk(dirOn(t, disk), sites, diskRows); err != nil {
		t.Fatal(err)
	}
	calls = disk.Calls()
	want, err := contents(dirOn(t, disk))
	if err != nil {
		t.Fatal(err)
	}
	if len(want[schema.Sites]) != diskSites || len(want[schema.Bodies]) < 3 || len(want[schema.TokenStats]) == 0 || len(want[schema.RecordStats]) == 0 || want["rejects"][0] == "" {
		t.Fatalf("too little to compare with: %d sites, %d bodies", len(want[schema.Sites]), len(want[schema.Bodies]))
	}
	return want, calls
}

// left checks the state after an accident: each file that a commit names exists with its bytes, and a resumed scan
// gives the undisturbed result, also after another power loss.
func left(t *testing.T, disk *storetest.Disk, sites []*audit.Site, want map[string][]string, after string) {
	t.Helper()
	dir := dirOn(t, disk)
	if err := whole(disk, dir); err != nil {
		t.Errorf("%s: what is committed cannot be read: %v", after, err)
	}
	// In one part, so that files without a commit are not merely overwritten.
	if err := scanDisk(dir, sites, 10*diskRows); err != nil {
		t.Errorf("%s: cannot resume: %v", after, err)
		return
	}
	if left, err := leftovers(disk, dir); err != nil || len(left) > 0 {
		t.Errorf("%s: left over: %q, %v", after, left, err)
	}
	got, err := contents(dir)
	if text := difference(got, want); err != nil || text != "" {
		t.Errorf("%s: %s %v", after, text, err)
	}
	now, then := disk.Files(), disk.Restart(storetest.Unsynced).Files()
	for name := range now {
		if now[name] != then[name] && path.Base(name)[0] != '.' {
			t.Errorf("%s, resumed: another loss of power took %s", after, name)
		}
	}
	for name := range then {
		if _, there := now[name]; !there && path.Base(name)[0] != '.' && path.Base(name) != "lock" {
			t.Errorf("%s, resumed: another loss of power brought %s back", after, name)
		}
	}
}

// whole checks the hashes of all committed files.
func whole(disk *storetest.Disk, st store.Store) error {
	commits, err := commit.Commits(context.Background(), st, diskScan)
	if err != nil {
		return err
	}
	files := disk.Files()
	seen := map[uint64]bool{}
	for _, c := range commits {
		for _, f := range c.Files {
			if sum := sha256.Sum256([]byte(files["/data/out/"+f.Name])); hex.EncodeToString(sum[:]) != f.SHA256 {
				return fmt.Errorf("%s is not what was committed", f.Name)
			}
		}
		finished, err := c.Bitmap()
		if err != nil {
			return err
		}
		for _, seq := range finished.ToArray() {
			if seen[seq] {
				return fmt.Errorf("seq %d is committed twice", seq)
			}
			seen[seq] = true
		}
	}
	return nil
}

// writtenAgain reports whether a file is rewritten if it differs, and so if it cannot be read: views.sql, the index, and records
// of single files.
func writtenAgain(name string) bool {
	return path.Base(name) == views.Name || strings.HasSuffix(name, index.Name) || strings.Contains(name, "/files/")
}
