package sink

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// viewsIn returns the tables with views in views.sql.
func viewsIn(t *testing.T, st store.Store) []string {
	t.Helper()
	data, err := store.ReadAll(t.Context(), st, views.Name, views.MaxBytes)
	if err != nil {
		t.Fatal(err)
	}
	if !views.Sound(data) {
		t.Error("its sum is wrong")
	}
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^CREATE OR REPLACE VIEW (\w+) AS$`).FindAllStringSubmatch(string(data),
		-1) {
		names = append(names, match[1])
	}
	return names
}

// TestViews shows that views.sql exists from the start of a scan and has views of the tables with files, since DuckDB
// refuses views of missing files. internal/integration/duckdb tests the views themselves.
func TestViews(t *testing.T) {
	dir := newDir(t)
	f := func(want ...string) {
		t.Helper()
		if got := viewsIn(t, dir); !slices.Equal(got, want) {
			t.Errorf("views of %q, want %q", got, want)
		}
	}
	o := Options{ScanID: "v", Date: "2026-11-21", Tables: []string{schema.Sites, schema.Evidence}}
	w := mustOpen(t, dir, o)
	f()
	if err := w.Add(typicalSite(t, 1)); err != nil {
		t.Fatal(err)
	}
	if err := completeListed(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	f("bulkscan_files", "sites", "evidence", "bulkscan_policies", "policies", "sites_live", "tokens", "scans",
		"policy_tokens", "policy_sites", "domains", "blocked_sets", "site_tokens", "site_blocks", "token_groups", "rollups")
	writeStats(t, dir, "v", schema.RecordStats, schema.RecordStatsRow{Kind: "typo", Key: "x"})
	f("bulkscan_files", "sites", "evidence", "bulkscan_policies", "policies", "record_stats", "sites_live", "tokens",
		"scans", "policy_tokens", "policy_sites", "domains", "blocked_sets", "site_tokens", "site_blocks", "token_groups",
		"rollups")
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	watched := &storetest.Faults{Store: dir}
	if err := mustOpen(t, watched, o).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(watched.Steps(), func(s storetest.Step) bool {
		return s.Name == views.Name &&
			s.Op != "sweep"
	}) {
		t.Error("the views were written again, as they were")
	}
	o.Restart = true
	mustOpen(t, dir, o)
	f()
}

// TestViewsKeepTheRegistry shows that views.sql keeps the tokens of the scan when statistics are computed or parts are
// merged without them, whatever the names of the tokens.
func TestViewsKeepTheRegistry(t *testing.T) {
	dir := newDir(t)
	registry,
		err := tokens.Load(strings.NewReader(
		"name | category | purpose | operator | * | fallback\nit's-mine | custom | other | O'Neill | yes | gptbot\n"))
	if err != nil {
		t.Fatal(err)
	}
	f := func(when string, want int) {
		t.Helper()
		data, err := store.ReadAll(t.Context(), dir, views.Name, views.MaxBytes)
		if err != nil {
			t.Fatal(err)
		}
		const row = `{"token":"it''s-mine","category":"custom","operator":"O''Neill","purpose":"other","heeds_star":true,"fallback":["GPTBot"]}` + "\n]"
		if got := strings.Count(string(data), row); got != want {
			t.Errorf("%s: the token stands there %d times, not %d", when, got, want)
		}
		if got := strings.Count(string(data), "\n"+`{"token":"GPTBot",`); got != 1 {
			t.Errorf("%s: GPTBot stands there %d times", when, got)
		}
	}
	w := mustOpen(t, dir, Options{ScanID: "own", Date: "2026-11-21", Registry: registry})
	if err := errors.Join(w.Add(typicalSite(t, 1)), w.Flush(t.Context()), w.Add(typicalSite(t, 2)),
		completeListed(t.Context(), w), w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	f("scanned", 1)
	writeStats(t, dir, "own", schema.RecordStats, schema.RecordStatsRow{Kind: "typo", Key: "x"})
	f("counted", 1)
	if merged, err := compact.Scan(t.Context(), dir, "own", compact.Options{}); err != nil || merged.PartsAfter != 1 {
		t.Fatalf("%+v, %v", merged, err)
	}
	f("merged", 1)
	writeSites(t, dir, "other", typicalSite(t, 1))
	f("scanned by the registry of the program", 0)
}

// TestScansWithADamagedOne shows that Scans returns the other scans despite a damaged manifest, and names the damaged
// one.
func TestScansWithADamagedOne(t *testing.T) {
	dir := newDir(t)
	for i := range 4 {
		writeSites(t, dir, fmt.Sprintf("s%d", i), typicalSite(t, 1))
	}
	flip(t, dir.Root()+"/"+commit.ManifestName("s1"), 40)
	if err := dir.Put(t.Context(), commit.ManifestName("s3"), nil); err != nil {
		t.Fatal(err)
	}
	scans, err := commit.Scans(t.Context(), dir)
	damaged, ok := errors.AsType[*commit.DamagedScansError](err)
	if !ok || len(damaged.Scans) != 2 || damaged.Scans[0].ScanID != "s1" || damaged.Scans[1].ScanID != "s3" {
		t.Fatalf("%v", err)
	}
	if !strings.Contains(err.Error(), "2 of the scans cannot be read") || !strings.Contains(err.Error(),
		"manifest of scan s1") || !errors.Is(err, commit.ErrRecord) {
		t.Errorf("%v", err)
	}
	if len(scans) != 2 || scans[0].ScanID != "s0" || scans[1].ScanID != "s2" {
		t.Errorf("%d others", len(scans))
	}
}

// sweptStore is a folder in which another process sweeps just before a draft of views.sql is published.
type sweptStore struct {
	*store.Dir
	sweeps int
}

func (s *sweptStore) Put(ctx context.Context, name string, data []byte) error {
	if name != views.Name || s.sweeps == 0 {
		return s.Dir.Put(ctx, name, data)
	}
	s.sweeps--
	draft, err := s.Create(ctx, name)
	if err != nil {
		return err
	}
	_, err = draft.Write(data)
	err = errors.Join(err, draft.Seal(), commit.SweepFiles(ctx, s.Dir, views.Name))
	return errors.Join(err, draft.Publish(ctx), draft.Discard())
}

// TestViewsAreSwept shows that a scan removes drafts of views.sql that dead processes left, and that a living process
// whose draft was swept still writes the file.
func TestViewsAreSwept(t *testing.T) {
	dir := newDir(t)
	if err := scanAll(dir, typicalSites(t, crashSites)); err != nil { // so that there are files for views
		t.Fatal(err)
	}
	f := func(name string, sweep func()) {
		t.Helper()
		draft, err := dir.Create(t.Context(), views.Name)
		if err == nil {
			err = draft.Seal()
		}
		if err != nil {
			t.Fatal(err)
		}
		sweep()
		if err := draft.Publish(t.Context()); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("%s left a draft of the views: %v", name, err)
		}
	}
	f("compact", func() { mustCompact(t, dir, compact.Options{}) })
	f("open", func() { mustOpen(t, dir, crashOptions) })
	swept := &sweptStore{Dir: newDir(t), sweeps: 2}
	if err := views.Write(t.Context(), swept, nil); err != nil || swept.sweeps != 0 {
		t.Errorf("%v, and %d sweeps are left", err, swept.sweeps)
	}
	if data, err := store.ReadAll(t.Context(), swept, views.Name, views.MaxBytes); err != nil || !views.Sound(data) {
		t.Errorf("%v", err)
	}
}
