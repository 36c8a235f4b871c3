package sink

import (
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
)

// groupsIn returns the number of row groups in the footer of a commit's file.
func groupsIn(t *testing.T, scan *commit.Scan, file schema.File) int {
	t.Helper()
	object, err := scan.Store.Open(t.Context(), file.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	_, encoded, err := table.OpenTail(object)
	if err != nil {
		t.Fatal(err)
	}
	footer, err := table.DecodeFooter(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return len(footer.RowGroups)
}

// TestManyRowGroups shows that sites which end row groups early, such as those with long bodies, do not make a footer
// too long to be read. Their parts are full earlier, and are merged as far as possible.
func TestManyRowGroups(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip(
			"SKIPPED in short mode, and under the race detector, which finds nothing there: it writes 160,000 sites one after the other")
	}
	dir := newDir(t)
	const sites = 5 * partGroups * batchRows
	w := mustOpen(t, dir, Options{ScanID: "g", Date: "2026-11-21", ToolVersion: "test", PartRows: sites,
		Tables: []string{schema.Sites, schema.Verdicts}, groupBytes: 1})
	s := deadSite(t, 0)
	for i := range uint64(sites) {
		s.Seq = i
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := completeListed(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := func(moment string, parts, most int) {
		t.Helper()
		scan := mustReadScan(t, dir, "g")
		if len(scan.Commits) != parts {
			t.Errorf("%s: %d parts, want %d", moment, len(scan.Commits), parts)
		}
		for i := range scan.Commits {
			for _, file := range scan.Commits[i].Files {
				if n := groupsIn(t, scan, file); n != file.Groups || n > most {
					t.Errorf("%s: %s has %d row groups, its commit says %d, at most %d", moment, file.Name, n, file.Groups, most)
				}
			}
		}
		for _, table := range scan.Manifest.Tables {
			if n := len(cursorSeqs(t, scan, table)); n != sites {
				t.Errorf("%s: %d rows of %s", moment, n, table)
			}
		}
		if lines, _ := findings(t, dir); len(lines) > 0 {
			t.Errorf("%s: %q", moment, lines)
		}
	}
	f("written", 5, partGroups)
	if done, err := compact.Scan(t.Context(), dir, "g", compact.Options{}); err != nil || done.PartsAfter != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	f("compacted", 2, compact.MaxGroups)
	if done, err := compact.Scan(t.Context(), dir, "g", compact.Options{}); err != nil || done.PartsBefore != 2 ||
		done.PartsAfter != 2 {
		t.Errorf("again: %+v, %v", done, err)
	}
}
