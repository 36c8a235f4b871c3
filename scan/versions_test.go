package scan

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// TestCheckVersions shows that a dataset is refused if one record has another schema version, or if the index has,
// which is no record and would be written anew. Other damage is left to its readers.
func TestCheckVersions(t *testing.T) {
	f := func(want error, change func(st *store.Dir)) {
		t.Helper()
		st, err := store.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		w, err := sink.Open(t.Context(), st, sink.Options{ScanID: "s", Date: "2026-11-20"})
		if err == nil {
			err = errors.Join(w.Complete(t.Context()), w.Close(t.Context()))
		}
		if err != nil {
			t.Fatal(err)
		}
		change(st)
		err = CheckVersions(t.Context(), st)
		if want == nil && err != nil || want != nil && (!schema.OfOtherVersion(err) || !strings.HasSuffix(err.Error(),
			want.Error())) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	manifest := func(by int) func(st *store.Dir) {
		return func(st *store.Dir) {
			m, err := commit.ReadManifest(t.Context(), st, "s")
			if err == nil {
				m.SchemaVersion += by
				err = m.Write(t.Context(), st)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	newer, older := &schema.NewerError{Version: schema.Version + 1}, &schema.OlderError{Version: schema.Version - 1}
	f(nil, func(*store.Dir) {})
	f(newer, manifest(1))
	f(older, manifest(-1))
	f(newer, func(st *store.Dir) {
		h := &commit.Head{SchemaVersion: schema.Version + 1, Number: 99}
		if err := commit.WriteRecord(t.Context(), st.Put, h.Name(), h, &h.Sum); err != nil {
			t.Fatal(err)
		}
	})
	f(newer, func(st *store.Dir) {
		data, err := table.Encode(nil, table.PageBytes, map[string]string{table.MetaSchema: "99"}, []index.Row{{}})
		newer.Version = 99
		if err == nil {
			err = st.Put(t.Context(), index.Name, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	for _, name := range []string{commit.ManifestName("s"), index.Name} {
		f(nil, func(st *store.Dir) {
			if err := os.WriteFile(filepath.Join(st.Root(), filepath.FromSlash(name)), []byte("no record"), 0o666); err != nil {
				t.Fatal(err)
			}
		})
	}
}
