package simweb

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestEndsAreTrue compares Behaviour.Ends, which is documentation, with the truth.
func TestEndsAreTrue(t *testing.T) {
	w := testWeb(t, Config{})
	for _, b := range behaviours {
		e := w.Expect(mustOrigin(t, b.Name+".zoo.test"), DefaultPolicy())
		if !strings.Contains(b.Ends, e.Outcomes[0].String()) {
			t.Errorf("%s: the table says %q, the truth %v", b.Name, b.Ends, e.Outcomes)
		}
		if e.Outcomes[0] == exchange.Answered {
			if status := regexp.MustCompile(`answered (\d+)`).FindStringSubmatch(b.Ends); status != nil &&
				status[1] != fmt.Sprint(e.Status) {
				t.Errorf("%s: the table says %q, the truth %d", b.Name, b.Ends, e.Status)
			}
			if strings.Contains(b.Ends, "by http") != (e.FinalScheme == origin.HTTP) {
				t.Errorf("%s: the table says %q, the truth %v", b.Name, b.Ends, e.FinalScheme)
			}
		}
		// Brackets are about other entries.
		if hops := regexp.MustCompile(`, (\d) hops?`).FindStringSubmatch(b.Ends); hops != nil &&
			hops[1] != fmt.Sprint(e.Hops) || hops == nil && e.Hops > 0 && e.Outcomes[0] != exchange.RedirectLimit {
			t.Errorf("%s: the table says %q, the truth %d hops", b.Name, b.Ends, e.Hops)
		}
		if strings.Contains(b.Ends, "truncated") != e.Truncated {
			t.Errorf("%s: the table says %q, the truth %v", b.Name, b.Ends, e.Truncated)
		}
	}
}

func TestTableIsSound(t *testing.T) {
	sum, seen := 0.0, map[string]bool{}
	for _, b := range Behaviours() {
		sum += b.Share
		if seen[b.Name] || !regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,30}$`).MatchString(b.Name) {
			t.Errorf("%q is not a valid name, or not the only one", b.Name)
		}
		seen[b.Name] = true
		if b.Does == "" || b.Ends == "" {
			t.Errorf("%s has no description", b.Name)
		}
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("shares add up to %v", sum)
	}
	if behaviours[0].Name != nameOK {
		t.Errorf("the first is %s", behaviours[0].Name)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has changed; to see how: go test ./simweb -update && git diff", path)
	}
}

// TestTruthGolden compares the truth of a host of each behaviour, and of a few made-up hosts, with a golden file.
func TestTruthGolden(t *testing.T) {
	w := testWeb(t, Config{Seed: 1})
	list := []string{"example.com", "https://example.com", "http://example.com", "www.example.com", "bücher.example",
		"not a host", " example.org ", "x.hot.test"}
	for _, b := range behaviours {
		list = append(list, b.Name+".zoo.test")
	}
	for _, host := range Names(1, 20) {
		list = append(list, host)
	}
	var b bytes.Buffer
	if err := w.WriteTruth(&b, slices.Values(list), DefaultPolicy()); err != nil {
		t.Fatal(err)
	}
	golden(t, "truth.jsonl", b.Bytes())
}

// TestOutcomesDocument compares the generated part of docs/outcomes.md with the code.
func TestOutcomesDocument(t *testing.T) {
	var outcomes bytes.Buffer
	if err := WriteOutcomes(&outcomes); err != nil {
		t.Fatal(err)
	}
	generated(t, "../docs/outcomes.md", "outcomes", outcomes.String())
	for o, m := range meanings {
		if o > 0 && m.happened == "" {
			t.Errorf("%v has no meaning", exchange.Outcome(o))
		}
	}
}

// generated compares the part between two marks of a document with its expected text.
func generated(t *testing.T, path, mark, want string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+mark+" -->\n", "<!-- /"+mark+" -->"
	before, rest, ok := strings.Cut(string(text), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no marks for the %s", path, mark)
	}
	if *update && old != want {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		old = want
	}
	if old != want {
		t.Errorf("%s has outdated %s; go test ./simweb -update", path, mark)
	}
}
