package sink

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// described is datapackage.json as a program reads it.
type described struct {
	Schema    string              `json:"$schema"`
	Name      string              `json:"name"`
	Title     string              `json:"title"`
	Created   string              `json:"created"`
	Licenses  []map[string]string `json:"licenses"`
	ID        any                 `json:"id"`
	Sources   []map[string]string `json:"sources"`
	Citation  string              `json:"bibliographicCitation"`
	Resources []struct {
		Name   string `json:"name"`
		Path   any    `json:"path"`
		Schema struct {
			Fields []struct{ Name, Type string } `json:"fields"`
		} `json:"schema"`
	} `json:"resources"`
}

// packageIn reads the description of a dataset, checks it against version 2.0 of the standard, and returns it with the
// files of each table. The files exist, and are those that count by the index.
func packageIn(t *testing.T, st store.Store) (d described, files map[string][]string) {
	t.Helper()
	data, err := store.ReadAll(t.Context(), st, schema.PackageName, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	hostiletest.Check(t, schema.PackageName, data, 4000)
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	created := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`)
	if d.Schema != "https://datapackage.org/profiles/2.0/datapackage.json" ||
		!regexp.MustCompile(`^[a-z0-9._-]+$`).MatchString(d.Name) || d.Title == "" || !created.MatchString(d.Created) ||
		len(d.Resources) == 0 || len(d.Sources) == 0 || d.Sources[0]["title"] == "" || !strings.HasPrefix(d.Citation,
		"@misc{bulkscan-") {
		t.Errorf("%+v", d)
	}
	files = map[string][]string{}
	for _, r := range d.Resources {
		switch path := r.Path.(type) {
		case string:
			files[r.Name] = []string{path}
		case []any:
			for _, name := range path {
				files[r.Name] = append(files[r.Name], name.(string))
			}
			if len(path) < 2 {
				t.Errorf("%s: a list of %d files", r.Name, len(path))
			}
		}
		i := slices.IndexFunc(schema.Tables(), func(table schema.Table) bool { return table.Name == r.Name })
		if i < 0 || len(r.Schema.Fields) != len(schema.Tables()[i].Columns) || len(files[r.Name]) == 0 {
			t.Errorf("%s: %d files, %d fields", r.Name, len(files[r.Name]), len(r.Schema.Fields))
		}
		for _, name := range files[r.Name] {
			if object, err := st.Open(t.Context(), name); err != nil {
				t.Errorf("%s names a file that is not there: %v", r.Name, err)
			} else if err := object.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	return d, files
}

// TestDataPackage follows the description through a dataset's life: there is none before a scan is published; then it
// has every table that has files, with the files that count, after a second scan of the same sites, a compaction, and a
// restart; and none is left without a published scan.
func TestDataPackage(t *testing.T) {
	dir := newDir(t)
	missing := func(when string) {
		t.Helper()
		if _, err := store.ReadAll(t.Context(), dir, schema.PackageName, 1<<20); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("%s: %v", when, err)
		}
	}
	o := crashOptions
	w := mustOpen(t, dir, o)
	missing("while the first scan is under way")
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	scanWithStats(t, dir, o, typicalSites(t, crashSites)...)
	d, one := packageIn(t, dir)
	want := slices.Sorted(slices.Values(append(slices.Clone(schema.AllTables), schema.TokenStats, schema.RecordStats)))
	if got := slices.Sorted(maps.Keys(one)); !slices.Equal(got, want) || len(one[schema.Sites]) < 2 ||
		d.Title != "robots.txt of , 2026-11-21" {
		t.Errorf("%s: tables %q of %q", d.Title, got, want)
	}

	second := crashOptions
	second.ScanID, second.ListID = "crash-2", ""
	scanWithStats(t, dir, second, typicalSites(t, crashSites)...)
	d, two := packageIn(t, dir)
	if got := slices.Sorted(maps.Keys(two)); !slices.Equal(got,
		slices.Sorted(slices.Values(append(want, schema.Superseded)))) || !strings.Contains(d.Sources[0]["title"],
		"crash-2") {
		t.Errorf("two scans of one date: tables %q, %v", got, d.Sources)
	}
	if len(two[schema.Sites]) != 2*len(one[schema.Sites]) || len(two[schema.TokenStats]) != 1 ||
		!strings.Contains(two[schema.TokenStats][0], "crash-2") {
		t.Errorf("of two scans: sites %q, statistics %q", two[schema.Sites], two[schema.TokenStats])
	}

	// A person adds facts that bulkscan cannot know, and they stay from then on.
	text, err := store.ReadAll(t.Context(), dir, schema.PackageName, 1<<20)
	if err == nil {
		text = bytes.Replace(text, []byte(`"title"`),
			[]byte("\"id\": \"https://doi.org/10.5281/1\",\n\"licenses\":\t[{\"name\": \"CC-BY-4.0\"}],\"title\""), 1)
		err = dir.Put(t.Context(), schema.PackageName, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	mustCompact(t, dir, compact.Options{})
	d, merged := packageIn(t, dir)
	if len(merged[schema.Sites]) >= len(two[schema.Sites]) || len(d.Licenses) != 1 ||
		d.Licenses[0]["name"] != "CC-BY-4.0" || d.ID != "https://doi.org/10.5281/1" {
		t.Errorf("compacted: sites %q, %+v", merged[schema.Sites], d)
	}
	indexed(t, dir)

	for _, id := range []string{"crash-2", "crash-1"} {
		again := crashOptions
		again.ScanID, again.Restart = id, true
		if err := mustOpen(t, dir, again).Abort(); err != nil {
			t.Fatal(err)
		}
		if id == "crash-2" {
			if _, files := packageIn(t, dir); len(files[schema.Superseded]) != 0 ||
				strings.Contains(strings.Join(files[schema.Sites], " "), id) {
				t.Errorf("after a restart: %q", files)
			}
		}
	}
	missing("without a published scan")
	if lines, v := findings(t, dir); v.Damaged != 0 {
		t.Errorf("%q", lines)
	}
}

// TestDataPackageOfOthers puts each kind of file in the place of the description. A file without bulkscan's mark stays
// unchanged through all commands, and verify does not report it. A file with the mark is reported by verify, and
// written anew.
func TestDataPackageOfOthers(t *testing.T) {
	whole := string(smallFile(t, schema.PackageName))
	indented := strings.ReplaceAll(whole, "\n  ", "\n\t")
	for what, c := range map[string]struct {
		text string
		ours bool
	}{
		"empty":              {"", false},
		"no JSON":            {"not JSON", false},
		"a list":             {"[]", false},
		"a person's":         {`{"name": "mine", "resources": [{"name": "a", "path": "a.csv"}]}`, false},
		"without the mark":   {strings.Replace(whole, schema.PackageMark, "no", 1), false},
		"too big":            {strings.Repeat(" ", 64<<20) + whole, false},
		"cut":                {whole[:len(whole)/2], true},
		"written by another": {indented, true},
		"of other types":     {strings.Replace(whole, `"title"`, `"id": 7, "contributors": "x", "title"`, 1), true},
		"fields changed":     {strings.Replace(whole, `"integer"`, `"string"`, 1), true},
		"only the mark":      {schema.PackageMark, true},
	} {
		dir := smallDataset(t)
		if err := dir.Put(t.Context(), schema.PackageName, []byte(c.text)); err != nil {
			t.Fatal(err)
		}
		lines, v := findings(t, dir)
		if named := strings.Contains(strings.Join(lines, "\n"), "leftover: "+schema.PackageName+
			": it does not describe what is there"); named != c.ours || v.Damaged != 0 {
			t.Errorf("%s: verify says %q", what, lines)
		}
		if err := index.Update(t.Context(), dir); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		mustCompact(t, dir, compact.Options{})
		now, err := os.ReadFile(filepath.Join(dir.Root(), schema.PackageName))
		if same := string(now) == c.text; err != nil || same == c.ours {
			t.Errorf("%s: it stays: %v, %v", what, same, err)
		}
		if c.ours {
			packageIn(t, dir)
		}
	}
	dir := smallDataset(t)
	path := filepath.Join(dir.Root(), schema.PackageName)
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o777)); err != nil {
		t.Fatal(err)
	}
	mustCompact(t, dir, compact.Options{}) // a folder in its place stops no command
}

// smallFile returns a file of the small dataset.
func smallFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := store.ReadAll(t.Context(), smallDataset(t), name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestDataPackageEscapes describes scans whose lists, products and versions are hostile: it is JSON with these texts,
// and a terminal shows every character of it.
func TestDataPackageEscapes(t *testing.T) {
	for _, h := range hostiletest.Texts() {
		dir := newDir(t)
		o := Options{ScanID: "s", Date: "2026-11-21", ListID: h.Text, ToolVersion: h.Text,
			Observer: commit.Observer{Source: commit.Live, Product: h.Text, Vantage: h.Text},
			Inputs:   []commit.Input{{Name: h.Text, Fingerprint: h.Text}}}
		w := mustOpen(t, dir, o)
		err := w.Add(typicalSite(t, 1))
		if err = errors.Join(err, w.Flush(t.Context()), completeListed(t.Context(), w), w.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		if d, _ := packageIn(t, dir); len(h.Text) < 100 && !strings.Contains(d.Title, strings.ToValidUTF8(h.Text, "\ufffd")) {
			t.Errorf("%q is not in %q", h.Text, d.Title)
		}
	}
}
