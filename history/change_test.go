package history

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// TestChanges shows which files are compared, by the added and removed lines.
func TestChanges(t *testing.T) {
	dir := newDir(t)
	noBodies := func(o *sink.Options) { o.Tables = []string{schema.Sites, schema.Verdicts} }
	scanned(t, dir, "n1", "2026-11-01", nil, "a.example=b", "b.example=a", "c.example=a", "d.example=a", "other.example=c")
	scanned(t, dir, "n2", "2026-11-02", nil, "a.example=a", "b.example=e", "c.example=b", "d.example=a", "other.example=b")
	scanned(t, dir, "n3", "2026-11-03", noBodies, "a.example=c", "c.example=a", "d.example=dead")
	scanned(t, dir, "n4", "2026-11-04", nil, "a.example=b", "d.example=b")
	mustRebuild(t, dir, Options{})
	f := func(host string, want ...string) {
		t.Helper()
		stories, err := Stories(t.Context(), dir, host, Asked{Registry: tokens.Default()})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range stories[0].Episodes {
			if c := e.Change; c != nil {
				lines := slices.DeleteFunc(slices.Clone(c.Diff), func(l string) bool { return l[0] != '+' && l[0] != '-' })
				got = append(got, fmt.Sprintf("%v %v%v %q", e.ValidFrom, c.HasBefore, c.HasAfter, lines))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", host, got, want)
		}
	}
	f("a.example", // the file of the first night, not the one with the comment, follows b; that one is not stored
		`2026-11-02 truetrue ["-User-agent: *" "-Disallow: /private" "+User-agent: GPTBot" "+Disallow: /"]`,
		`2026-11-04 falsetrue []`)
	f("b.example") // files that are no robots.txt are not compared
	f("c.example",
		`2026-11-02 truetrue ["-User-agent: GPTBot" "-Disallow: /" "+User-agent: *" "+Disallow: /private"]`,
		`2026-11-03 truefalse []`)
	f("d.example", `2026-11-04 truetrue ["-User-agent: GPTBot" "-Disallow: /" "+User-agent: *" "+Disallow: /private"]`)

	// For a pruned night there are no files, and so no first file of an episode whose file changed.
	for name, err := range dir.List(t.Context(), "_scans/n2/") {
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.Delete(t.Context(), name.Name); err != nil {
			t.Fatal(err)
		}
	}
	f("a.example", "2026-11-02 truefalse []", "2026-11-04 falsetrue []")
}

// TestTreated shows how a policy without its file treats a token.
func TestTreated(t *testing.T) {
	registry := tokens.Default()
	f := func(p Policy, token, want string) {
		t.Helper()
		id, _ := registry.Find([]byte(token))
		if got := byPolicy(&p, registry, id); fmt.Sprintf("%s %s %s", got.Verdict, got.Via, got.Follows) != want {
			t.Errorf("%s under %+v: %+v, want %s", token, p, got, want)
		}
	}
	f(Policy{StarVerdict: "partial", OwnBlocked: []string{"GPTBot"}}, "GPTBot", "blocked own GPTBot")
	f(Policy{StarVerdict: "blocked", OwnAllowed: []string{"GPTBot"}}, "GPTBot", "allowed own GPTBot")
	f(Policy{StarVerdict: "blocked", OwnPartial: []string{"Googlebot"}}, "Googlebot-Image", "partial fallback Googlebot")
	f(Policy{StarVerdict: "blocked"}, "GPTBot", "blocked star *")
	f(Policy{StarVerdict: "allowed"}, "GPTBot", "allowed  ") // by `*` or without a group
	f(Policy{StarVerdict: "blocked"}, "AdsBot-Google", "allowed none ")
}

// TestTreatedByFile shows which lines of a file decide.
func TestTreatedByFile(t *testing.T) {
	registry := tokens.Default()
	auditor := audit.New(registry)
	f := func(file, token, want string) {
		t.Helper()
		id, _ := registry.Find([]byte(token))
		got := byFile(auditor, judged(auditor, []byte(file)), id)
		if text := fmt.Sprintf("%s %s %s; %d %s; %d %s", got.Verdict, got.Via, got.Follows, got.Line, got.Group, got.RuleLine,
			got.Rule); text != want {
			t.Errorf("%s in %q: %s, want %s", token, file, text, want)
		}
	}
	f("User-agent: a\r\nUser-agent: gptbot # ours\r\n\r\n Disallow : /\r\n", "GPTBot",
		"blocked own gptbot; 2 User-agent: gptbot # ours; 4 Disallow : /")
	f("User-agent: GPTBot\nDisallow: /a\n\nUser-agent: GPTBot\nAllow: /\n", "GPTBot",
		"partial own GPTBot; 1 User-agent: GPTBot; 5 Allow: /")
	f("User-agent: *\nDisallow: /\n\nUser-agent: googlebot\nDisallow: /a\n", "Googlebot-Image",
		"partial fallback googlebot; 4 User-agent: googlebot; 0 ")
	f("User-agent: *\nDisallow: /\n", "AdsBot-Google", "allowed none ; 0 ; 0 ")
	// no product token
	f("User-agent: *\nAllow: /\n\nUser-agent: MJ12bot\nDisallow: /\n", "MJ12bot",
		"allowed star *; 1 User-agent: *; 2 Allow: /")
	f("User-agent: *\nDisallow: /"+strings.Repeat("x", maxLine)+"\nDisallow: /", "GPTBot",
		"blocked star *; 1 User-agent: *; 3 Disallow: /")
}

// TestUnifiedDiff shows the diffs of pairs of files.
func TestUnifiedDiff(t *testing.T) {
	f := func(before, after string, more int, want ...string) {
		t.Helper()
		if got, n := unifiedDiff([]byte(before), []byte(after)); !slices.Equal(got, want) || n != more {
			t.Errorf("%.40q to %.40q: %q and %d, want %q and %d", before, after, got, n, want, more)
		}
	}
	f("a\nb\n", "a\nc\n", 0, "@@ -1,2 +1,2 @@", " a", "-b", "+c")
	f("a\rb", "a\r\nc\r\n", 0, "@@ -1,2 +1,2 @@", " a", "-b", "+c")
	f("a\nb", "a\r\nb\r\n", 0)
	f("a\n", strings.Repeat("x", 600)+"\n", 0, "@@ -1,1 +1,1 @@", "-a", "+"+strings.Repeat("x", maxLine-1))
	f("a\n", "\xff\x00\n", 0, "@@ -1,1 +1,1 @@", "-a", "+\ufffd\x00")
	lines, more := unifiedDiff(nil, bytes.Repeat([]byte("x\n"), 100))
	if len(lines) != maxDiff || more != 1+1+100-maxDiff {
		t.Errorf("%d lines and %d more", len(lines), more)
	}
}

// BenchmarkUnifiedDiff compares files of 512,000 bytes that are hard to compare: lines that are all alike, that all
// differ, and that all moved.
//
//	go test ./history -run '^$' -bench UnifiedDiff -benchmem
func BenchmarkUnifiedDiff(b *testing.B) {
	const size = 512_000
	lines := func(format string, from, step int) []byte {
		var file []byte
		for i := from; len(file) < size && i >= 0; i += step {
			file = fmt.Appendf(file, format, i)
		}
		return file[:size]
	}
	numbers := lines("%06d\n", 0, 1)
	for name, files := range map[string][2][]byte{
		"alike":   {bytes.Repeat([]byte("\n"), size), bytes.Repeat([]byte("\r"), size-1)},
		"other":   {numbers, lines("%06d\n", 500_000, 1)},
		"moved":   {numbers, lines("%06d\n", size/len("000000\n"), -1)},
		"twofold": {bytes.Repeat([]byte("a\nb\n"), size/4), bytes.Repeat([]byte("b\na\n"), size/4)},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				unifiedDiff(files[0], files[1])
			}
		})
	}
}
