package queries

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/sitetest"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	datasetviews "github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey/method"
)

// TestDefaultScan shows that all readers choose the same scan if none is named, whichever scans of other kinds are
// added to the dataset. The readers are the commands, by commit.Default, the dataset's README, and latest() in
// views.sql.
func TestDefaultScan(t *testing.T) {
	needDuckDB(t)
	dir, st := write(t, Survey{Name: "good", Sites: 20, Dates: []string{"2026-11-20"}})
	n := 0
	f := func(what, date string, sites int, as commit.Publication, tables []string, want string) {
		t.Helper()
		n++
		id := fmt.Sprintf("s%d", n)
		added(t, st, sink.Options{ScanID: id, Date: date, Tables: tables, NoPublish: as == commit.PublicationPending ||
			as == commit.PublicationHeld || as == commit.PublicationDiscarded}, sites, as)
		want = strings.ReplaceAll(want, "this", id)
		if err := errors.Join(index.Update(t.Context(), st), datasetviews.Write(t.Context(), st, nil),
			method.WriteReadme(t.Context(), st)); err != nil {
			t.Fatal(err)
		}
		scans, err := commit.Scans(t.Context(), st)
		if err != nil {
			t.Fatal(err)
		}
		of := commit.Default(scans)
		answers := ask(t, dir, []Query{{Name: "default",
			SQL: `SELECT arg_max(scan_id, {'date': scan_date, 'started': started_at}), CAST(latest() AS VARCHAR) FROM scans WHERE chosen`}})
		readme, err := store.ReadAll(t.Context(), st, method.ReadmeName, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		_, title, _ := strings.Cut(string(readme), "\n# ")
		title, _, _ = strings.Cut(title, "\n")
		if !strings.HasSuffix(title, of.ScanDate) {
			t.Errorf("%s: the README is of %q", what, title)
		}
		if of.ScanID != want || fmt.Sprint(answers[0].Rows) != fmt.Sprintf("[[%s %s]]", want, of.ScanDate) {
			t.Errorf("%s: the commands' default is %s of %s, that of SQL %v; want %s", what, of.ScanID, of.ScanDate,
				answers[0].Rows, want)
		}
	}
	good := "good-2026-11-20"
	f("no site", "2026-11-21", 0, commit.PublicationEmpty, nil, good)
	f("no site, published", "2026-11-21", 0, commit.PublicationDone, nil, good)
	f("none answered", "2026-11-21", 3, commit.PublicationEmpty, nil, good)
	f("unfinished", "2026-11-21", 3, "", nil, good)
	f("pending", "2026-11-21", 3, commit.PublicationPending, nil, good)
	f("held", "2026-11-21", 3, commit.PublicationHeld, nil, good)
	f("discarded", "2026-11-21", 3, commit.PublicationDiscarded, nil, good)
	f("without the table sites", "2026-11-21", 3, commit.PublicationDone, []string{schema.Verdicts}, good)
	f("of an older date", "2026-11-19", 3, commit.PublicationDone, nil, good)
	f("of the same date", "2026-11-20", 3, commit.PublicationDone, nil, "this")
	f("of a newer date", "2026-11-22", 3, commit.PublicationDone, nil, "this")
	f("none answered, published", "2026-11-23", 3, commit.PublicationDone, nil, "this")
}

// added adds a scan to a dataset. Without a publication it stays unfinished.
func added(t *testing.T, st store.Store, o sink.Options, sites int, as commit.Publication) {
	t.Helper()
	w, err := sink.Open(t.Context(), st, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, site := range sitetest.Judged(t, sites) {
		if err := w.Add(site); err != nil {
			t.Fatal(err)
		}
	}
	switch as {
	case "":
	case commit.PublicationEmpty:
		err = w.CompleteEmpty(t.Context())
	default:
		err = w.Complete(t.Context())
	}
	if err := errors.Join(err, w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if as == commit.PublicationHeld || as == commit.PublicationDiscarded {
		if err := commit.SetPublication(t.Context(), st, nil, o.ScanID, as); err != nil {
			t.Fatal(err)
		}
	}
}
