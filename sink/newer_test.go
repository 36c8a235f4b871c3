package sink

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/read"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// newerPlaces are the files that a later version of bulkscan has written; the rest of the scan is of this version.
var newerPlaces = []struct {
	name string
	age  func(t *testing.T, dir *store.Dir)
	file string // file that a finding names
}{
	{"manifest", func(t *testing.T, dir *store.Dir) {
		m, err := commit.ReadManifest(t.Context(), dir, crashOptions.ScanID)
		if err != nil {
			t.Fatal(err)
		}
		m.SchemaVersion++
		if err := m.Write(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}, commit.ManifestName(crashOptions.ScanID)},
	{"commit", func(t *testing.T, dir *store.Dir) { newerCommit(t, dir, func(c *commit.Commit) { c.SchemaVersion++ }) },
		crashCommit(1)},
	{"footer", func(t *testing.T, dir *store.Dir) {
		newerCommit(t, dir, func(c *commit.Commit) {
			for i := range c.Files {
				f := &c.Files[i]
				metadata := map[string]string{table.MetaSchema: fmt.Sprint(schema.Version + 1), table.MetaScan: crashOptions.ScanID}
				draft, file, err := table.Concat(t.Context(), dir, dir, f.Name, []schema.File{*f}, metadata)
				if err == nil {
					err = errors.Join(draft.Publish(t.Context()), draft.Discard())
				}
				if err != nil {
					t.Fatal(err)
				}
				*f = file
			}
		})
		// The totals match these files.
		m, err := commit.ReadManifest(t.Context(), dir, crashOptions.ScanID)
		commits, errCommits := commit.Commits(t.Context(), dir, crashOptions.ScanID)
		if err := errors.Join(err, errCommits); err != nil {
			t.Fatal(err)
		}
		m.Counts = commit.CountCommits(commits)
		if err := m.Write(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}, crashPart(schema.Sites, 1)},
}

// newerCommit changes the second of three commits and seals it again.
func newerCommit(t *testing.T, dir *store.Dir, change func(*commit.Commit)) {
	t.Helper()
	c, err := commit.ReadCommit(t.Context(), dir, crashOptions.ScanID, crashCommit(1))
	if err != nil {
		t.Fatal(err)
	}
	change(c)
	data, err := commit.SealRecord(c, &c.Sum)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir.Root(), crashCommit(1)), data, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNewer shows that data of a later version is never read, merged, repaired or restarted. It shows that Verify
// reports it, and still finds damage of its bytes and of another scan.
func TestNewer(t *testing.T) {
	for _, place := range newerPlaces {
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			dir := smallDataset(t)
			writeSites(t, dir, "fine", typicalSite(t, 1))
			place.age(t, dir)
			if err := index.Update(t.Context(), dir); err != nil { // as the later version would have left it
				t.Fatal(err)
			}
			before := objects(t, dir)
			read := func(id string) error {
				scan, err := commit.ReadScan(t.Context(), dir, id)
				if err != nil {
					return err
				}
				for _, err = range read.Rows[schema.SiteRow](t.Context(), scan, schema.Sites) {
					if err != nil {
						return err
					}
				}
				return nil
			}
			_, errCompact := compact.Scan(t.Context(), dir, crashOptions.ScanID, compact.Options{})
			told := map[string]error{"read": read(crashOptions.ScanID), "compact": errCompact}
			if place.name != "footer" { // which they do not read
				_, told["scan"] = Open(t.Context(), dir, crashOptions)
				_, told["repair"] = Open(t.Context(), dir, repairOptions())
			}
			if place.name == "manifest" {
				restart := crashOptions
				restart.Restart = true
				_, told["restart"] = Open(t.Context(), dir, restart)
			}
			for what, err := range told {
				if newer, ok := errors.AsType[*schema.NewerError](err); !ok || newer.Version != schema.Version+1 ||
					!strings.Contains(err.Error(), "use a newer bulkscan") {
					t.Errorf("%s: %v", what, err)
				}
			}
			if after := objects(t, dir); !reflect.DeepEqual(after, before) {
				t.Error("what was refused has changed something")
			}
			lines, v := findings(t, dir)
			if v.Damaged > 0 || v.Newer == 0 || !slices.ContainsFunc(lines, func(l string) bool {
				return strings.HasPrefix(l, fmt.Sprintf("newer: %s: it is of schema version %d", place.file, schema.Version+1))
			}) {
				t.Errorf("%+v\n%s", v, strings.Join(lines, "\n"))
			}
			if err := read("fine"); err != nil {
				t.Error(err)
			}
			if _, err := compact.Scan(t.Context(), dir, "fine", compact.Options{}); err != nil {
				t.Error(err)
			}
			// Its bytes are still verified.
			flip(t, filepath.Join(dir.Root(), crashPart(schema.Sites, 1)), 300)
			remove(t, dir, commit.PartName(schema.Sites, "2026-11-21", "fine", "0", 0))
			if lines, v := findings(t, dir); v.Damaged < 2 {
				t.Errorf("%+v\n%s", v, strings.Join(lines, "\n"))
			}
		})
	}
}
