package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

// TestCases judges small files from the real web. Each line has the right results: the finding, the verdict of `*`, the
// site's Content-Signal, other facts, and the advice.
func TestCases(t *testing.T) {
	folder := sharedtest.Path(t, "cases", "robots")
	met := map[string]bool{}
	f := func(name, finding, star, signal, more, advice string) {
		t.Helper()
		met[name+".txt"] = true
		body, err := os.ReadFile(filepath.Join(folder, name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		s := answered(string(body))
		out := Explain(s)
		var ids []string
		for _, a := range out.Advice {
			ids = append(ids, fmt.Sprintf("%s@%d", a.ID, a.Line))
		}
		got := fmt.Sprintf("%s %s %q %q", out.Finding, out.Star.Verdict, out.ContentSignal, strings.Join(ids, " "))
		if want := fmt.Sprintf("%s %s %q %q", finding, star, signal, advice); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		var kinds []string
		for _, e := range out.Evidence {
			kinds = append(kinds, fmt.Sprintf("%s@%d", e.Kind, e.Line))
		}
		all := " " + strings.Join(kinds, " ") + " "
		for _, v := range out.Verdicts {
			all += fmt.Sprintf("%s=%s ", v.Token, v.Verdict)
			if v.ContentSignal != "" {
				all += fmt.Sprintf("%s:%s ", v.Token, strings.ReplaceAll(v.ContentSignal, " ", ""))
			}
		}
		for fact := range strings.FieldsSeq(more) {
			unwanted, not := strings.CutPrefix(fact, "!")
			if strings.Contains(all, " "+unwanted+" ") == not {
				t.Errorf("%s: %s does not hold: %s", name, fact, all)
			}
		}
	}
	// Signals.
	f("p01", "rules", "allowed", "", "signal@2", "")
	f("p02", "rules", "allowed", "search=yes, ai-train=no", "signal@2", "")
	f("p06", "rules", "allowed", "search=yes, ai-train=no", "signal@2 signal@3 !conflict@3", "")
	f("c04", "rules", "allowed", "search=yes, ai-input=no, ai-train=no", "signal@2 signal@3 signal@4", "")
	f("r25", "rules", "allowed", "search=yes, ai-input=no, ai-train=no", "signal@2 signal@5", "")
	f("p07", "rules", "allowed", "", "GPTBot:ai-input=no,ai-train=no", "")
	f("r26", "rules", "allowed", "ai-train=no, ai_train=no, ai-training=no",
		"invalid@2 typo@3 unknown@3 invalid@4 signal@5 signal@6 invalid@7 "+
			"signal@8 signal@9 invalid@10 invalid@11 invalid@12 signal@13", "")
	// Usage records of drafts.
	f("r30", "rules", "partial", "", "usage@3 !typo@3 *=partial", "")
	f("r31", "rules", "allowed", "", "usage@2 usage@3 *=allowed", "")
	f("r32", "rules", "partial", "", "usage@3 usage@6 usage@7 GPTBot=blocked", "")
	// Managed blocks, deliberate splits.
	f("c01", "rules", "partial", "search=yes, ai-train=no, use=reference",
		"GPTBot=allowed ClaudeBot=partial CloudflareBrowserRenderingCrawler=blocked", "managed_block_overruled@7")
	f("c05", "rules", "allowed", "search=yes, ai-train=no", "GPTBot=blocked", "")
	f("c06", "rules", "allowed", "", "GPTBot=blocked ClaudeBot=blocked ChatGPT-User=allowed", "")
	// What an author did not want.
	f("r01", "rules", "blocked", "", "badbot=blocked", "groups_joined@3")
	f("r08", "rules", "allowed", "", "meta-external-agent=blocked Bytespider=blocked", "token_near_miss@1")
	// HTML before rules, invisible characters.
	f("h01", "rules", "blocked", "", "*=blocked", "markup_before_rules@1")
	f("h20", "rules", "allowed", "", "unknown@1 orphan@2", "invisible_characters@1")
	f("h21", "rules", "allowed", "", "unknown@1 orphan@2", "invisible_characters@1")
	f("h22", "rules", "allowed", "", "invalid@1 invalid@2", "invisible_characters@1")

	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !met[file.Name()] {
			t.Logf("%s has no line", file.Name())
		}
	}
}
