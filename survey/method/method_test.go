package method

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
	"github.com/bulkscan/bulkscan/survey"
)

// markup are texts with an effect in Markdown, HTML or BibTeX unless they are escaped.
var markup = []string{
	"`", "``", "```", "a`b`c", "```\n# " + hostiletest.Mark + "\n```bibtex\n", "\n\n# " + hostiletest.Mark, "a|b",
	"a | b |\n|---|---|", "|", `\`, `a\`, `\|`, "\\`", " ",
	"<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!--", "-->", "</code></td></table>",
	"[a](javascript:alert(1))", "![a](http://evil.test/)", "<http://evil.test/>",
	"[a]: http://evil.test/", "*a*", "_a_", "**", "~~a~~", "# a", "- a", "1. a", "> a", "    a", "\ta", "---", "===",
	"&lt;script&gt;", "$a$", "$`a`$", "@everyone #1", ":smile:",
	"}", "{", "}},\n  note = {x", `\input{/etc/passwd}`, "50%", "a~b^c#d&e_f", `"`, "\r\n# " + hostiletest.Mark,
	strings.Repeat("x", 5000), strings.Repeat("|`", 3000),
}

// readmeOf returns the README of a dataset with one described scan, and one that is only listed.
func readmeOf(t *testing.T, source string, text func() string) string {
	t.Helper()
	st, err := store.NewDirOn(storetest.NewDisk(), "out")
	if err != nil {
		t.Fatal(err)
	}
	for i, state := range []commit.State{commit.Complete, commit.State(text())} {
		m := &commit.Manifest{Rejudged: &commit.RejudgedScan{}, Inputs: make([]commit.Input, 2), Counts: &commit.Counts{}}
		for _, flag := range []string{"host-rate", "ip-rate", "timeout", "retries", "max-redirects", "max-body"} {
			m.Config = append(m.Config, commit.Setting{Name: flag})
		}
		everyText(reflect.ValueOf(m), text)
		// The next fields are checked when a manifest is read, or choose a text of ours.
		m.SchemaVersion, m.ScanID, m.ScanDate, m.StartedAt = schema.Version, fmt.Sprintf("s%d", i),
			fmt.Sprintf("2026-11-2%d", i), time.Unix(0, 0)
		m.State, m.Ending, m.Tables, m.Recorded, m.Observer.Source = state, commit.PublicationDone, nil, nil, source
		if source == commit.Archive {
			m.ListID = "" // so that the list is called by its files
		}
		for j, setting := range m.Config {
			m.Config[j].Name = []string{"host-rate", "ip-rate", "timeout", "retries", "max-redirects", "max-body"}[j]
			m.Config[j].Value = setting.Value + "."
		}
		if err := errors.Join(m.Create(t.Context(), st), commit.Adopt(t.Context(), st, nil, m)); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteReadme(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	written, err := store.ReadAll(t.Context(), st, ReadmeName, maxReadme)
	if err != nil {
		t.Fatal(err)
	}
	return string(written)
}

// everyText sets every text in a value.
func everyText(v reflect.Value, text func() string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			everyText(v.Elem(), text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				everyText(v.Field(i), text)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			everyText(v.Index(i), text)
		}
	case reflect.String:
		v.SetString(text())
	}
}

// withoutTexts returns a README without its pieces of code, and without the texts in braces of the citation. The rest
// has all the markup.
func withoutTexts(readme string) string {
	about, citation, _ := strings.Cut(readme, "```bibtex\n")
	citation, end, _ := strings.Cut(citation, "```\n")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(about, "`…`") +
		regexp.MustCompile(`\{[^{}\n]*\}`).ReplaceAllString(citation, "{…}") + end
}

// TestReadmeEscapes writes the README of datasets whose manifests are hostile in every text: it has the headings,
// links, tables and lines of any other, and a terminal shows every character. What a text says is there.
func TestReadmeEscapes(t *testing.T) {
	texts := markup
	for _, h := range hostiletest.Texts() {
		texts = append(texts, h.Text)
	}
	for _, source := range []string{commit.Live, commit.Archive, "<b>"} {
		usual := withoutTexts(readmeOf(t, source, func() string { return "0123456789abcdef" }))
		for _, text := range texts {
			readme := readmeOf(t, source, func() string { return text })
			if got := withoutTexts(readme); got != usual {
				t.Errorf("%s, %.100q: without texts it is\n%s\nwant\n%s", source, text, got, usual)
			}
			hostiletest.Check(t, fmt.Sprintf("%s, %.100q", source, text), []byte(readme), 4000)
			if strings.Contains(text, hostiletest.Mark) && !strings.Contains(readme, hostiletest.Mark) && len(text) < 100 {
				t.Errorf("%.100q is not shown", text)
			}
		}
	}
	// Each field has a text of its own: those that a README has no use for are in none.
	n := 0
	readme := readmeOf(t, commit.Live, func() string { n++; return fmt.Sprintf("text-%d-<b>", n) })
	if shown := len(regexp.MustCompile(`text-\d+-<b>`).FindAllString(readme, -1)); n < 60 || shown < 30 {
		t.Errorf("of %d texts %d are shown:\n%s", n, shown, readme)
	}
}

// TestUnreadIsSaid checks that the methods of a dataset contain Unread, and no other text about it.
func TestUnreadIsSaid(t *testing.T) {
	var text strings.Builder
	for _, s := range []Section{limits(), meanings()} {
		text.Write(markdown([]Section{s}))
	}
	if !strings.Contains(text.String(), survey.Unread) || strings.Contains(text.String(), "no share takes") {
		t.Errorf("the limitations are\n%s", text.String())
	}
}

// TestReadmeGoes: the README goes with the last published scan. It stays while the manifest of a published scan cannot
// be read, and if it is a person's.
func TestReadmeGoes(t *testing.T) {
	f := func(what string, change func(st store.Store) error, fails, goes bool) {
		t.Helper()
		st, err := store.NewDirOn(storetest.NewDisk(), "out")
		for _, id := range []string{"a", "b"} {
			m := &commit.Manifest{SchemaVersion: schema.Version, ScanID: id, ScanDate: "2026-11-20", State: commit.Complete,
				StartedAt: time.Unix(0, 0), FinishedAt: &time.Time{}, Ending: commit.PublicationDone, Counts: &commit.Counts{}}
			err = errors.Join(err, m.Create(t.Context(), st), commit.Adopt(t.Context(), st, nil, m))
		}
		err = errors.Join(err, WriteReadme(t.Context(), st), commit.Withdraw(t.Context(), st, nil, "b", "a test"))
		if err = errors.Join(err, change(st)); err != nil {
			t.Fatal(what, err)
		}
		if err := WriteReadme(t.Context(), st); (err != nil) != fails {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := store.ReadAll(t.Context(), st, ReadmeName, 1<<20); errors.Is(err, store.ErrNotExist) != goes {
			t.Errorf("%s: %v", what, err)
		}
	}
	withdraw := func(st store.Store) error { return commit.Withdraw(t.Context(), st, nil, "a", "a test") }
	f("one is published", func(store.Store) error { return nil }, false, false)
	f("none is", withdraw, false, true)
	f("a damaged one is", func(st store.Store) error {
		return st.Put(t.Context(), commit.ManifestName("a"), []byte("{}"))
	}, true, false)
	f("none is, and the README is a person's", func(st store.Store) error {
		return errors.Join(withdraw(st), st.Put(t.Context(), ReadmeName, []byte("mine")))
	}, false, false)
}
