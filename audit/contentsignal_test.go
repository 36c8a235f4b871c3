package audit

import (
	"fmt"
	"strings"
	"testing"
)

// TestContentSignalValues shows which values are understood completely, and the path and the pairs of these.
func TestContentSignalValues(t *testing.T) {
	f := func(value, want string) { // "" for an invalid value
		t.Helper()
		path, pairs, valid := SignalValue([]byte(value))
		got := strings.TrimSpace(string(path))
		if valid {
			for key, val := range SignalPairs(pairs) {
				got += fmt.Sprintf(" %s=%s", key, val)
			}
		}
		if got = strings.TrimSpace(got); got != want || valid != (want != "") {
			t.Errorf("%q: %q %v, want %q", value, got, valid, want)
		}
	}
	f("ai-train=no, search=yes, ai-input=no", "ai-train=no search=yes ai-input=no")
	f("ai-train=no,search=yes", "ai-train=no search=yes")
	f(" AI-Train = NO ", "AI-Train=NO")
	f("search=yes, search=no", "search=yes search=no")
	f("use=reference", "use=reference")
	f("use=immediate, use=full", "use=immediate use=full")
	f("colour=red", "colour=red") // unknown keys are kept
	f("ai_train=no", "ai_train=no")
	f("search=yes,", "search=yes")
	f(",,search=yes, ,ai-train=no", "search=yes ai-train=no")

	f("/blog ai-train=no", "/blog ai-train=no")
	f("/ ai-train=no, search=yes", "/ ai-train=no search=yes")
	f("/*.pdf$ \t search=yes,", "/*.pdf$ search=yes")
	f("*.pdf search=yes", "*.pdf search=yes")
	f("/a,b=c search=yes", "/a,b=c search=yes")

	f("use=maybe", "")
	f("search=1", "")
	f("search=1, ai-train=no", "") // never half-read
	f("search=yes, ai-train=maybe", "")
	f("search=yes, nonsense", "")
	f("search", "")
	f("search=", "")
	f("=yes", "")
	f("search=yes no", "")
	f("search=yes ai-train=no", "")
	f("search=yes; ai-train=no", "")
	f("ai-train:no", "")
	f("ai-train=n", "")
	f("ai-train=false", "")
	f("a=b=c", "")
	f(`"ai-train=no"`, "")
	f(`ai-train="no"`, "")
	f("'ai-train'=no", "")
	f("“ai-train=no”", "")
	f("", "")
	f(",", "")
	f("/blog", "")
	f("/blog ", "")
	f("/blog nonsense", "")
	f("/a b c=d", "")
	f("/blog ai-train=no, x", "")
	f("https://a.example/blog ai-train=no", "")
}

// TestSignalsAddUp shows what holds for `/` and agents of `*`, and which lines contradict others.
func TestSignalsAddUp(t *testing.T) {
	f := func(text, want string, conflicts ...int) {
		t.Helper()
		r := &answered(lines(text)).Report
		var got []int
		for _, e := range r.Evidence {
			if e.Kind == KindConflict {
				got = append(got, e.Line)
			}
		}
		if string(r.ContentSignal) != want || fmt.Sprint(got) != fmt.Sprint(conflicts) {
			t.Errorf("%q: %q, conflicts %v, want %q %v", text, r.ContentSignal, got, want, conflicts)
		}
	}
	// One line: canonical form.
	f("ua: * | Content-Signal: search=yes,ai-train=no", "search=yes, ai-train=no")
	f("ua: * | Content-Signal: use=full, AI-Train = NO, ai-input=yes, search=no",
		"search=no, ai-input=yes, ai-train=no, use=full")
	f("ua: * | Content-Signal: Colour=Red, search=yes, a=b,colour=blue", "search=yes, colour=red, a=b, colour=blue")
	f("ua: * | Content-Signal: search=no, search=yes", "search=no", 2)
	f("ua: * | Content-Signal: search=yes, search=maybe", "")

	// Lines of a group, of merged groups, and of groups of `*` with other agents.
	f("ua: * | Content-Signal: search=yes | Content-Signal: ai-train=no | Content-Signal: ai-input=no",
		"search=yes, ai-input=no, ai-train=no")
	f("ua: * | Content-Signal: search=yes | a: / | ua: * | Content-Signal: ai-train=no", "search=yes, ai-train=no")
	f("ua: * | Content-Signal: ai-train=yes | a: / | ua: a | ua: * | Content-Signal: ai-train=no", "ai-train=no", 6)
	f("ua: * | Content-Signal: ai-train=no | Content-Signal: ai-train=yes | Content-Signal: ai-train=no", "ai-train=no", 3)
	f("ua: * | Content-Signal: x=1, x=2 | Content-Signal: X=1", "x=1, x=2") // an unknown key may have several values
	f("ua: a | Content-Signal: ai-train=yes | a: / | ua: * | Content-Signal: ai-train=no", "ai-train=no")
	f("ua: a | Content-Signal: ai-train=no", "")
	// the first line is before `*`
	f("ua: a | Content-Signal: search=no | ua: * | Content-Signal: ai-train=no", "ai-train=no")
	f("ua: * | Content-Signal: search=yes; ai-train=no | Content-Signal: ai-train=no", "ai-train=no")

	// Before any group.
	f("Content-Signal: ai-train=no", "ai-train=no")
	f("Content-Signal: ai-train=no | ua: *", "ai-train=no")
	f("Content-Signal: ai-train=no | ua: * | Content-Signal: search=yes", "search=yes, ai-train=no")
	f("Content-Signal: ai-train=yes | Content-Signal: ai-train=no | ua: a", "ai-train=no", 2)

	// use: reference is narrower than full, immediate is neither.
	f("ua: * | Content-Signal: use=full | Content-Signal: use=reference", "use=reference", 3)
	f("ua: * | Content-Signal: use=reference, use=full", "use=reference", 2)
	f("ua: * | Content-Signal: use=immediate | Content-Signal: use=full", "use=immediate, use=full", 3)
	f("ua: * | Content-Signal: use=full, use=immediate, use=reference", "use=immediate, use=reference", 2)

	// Paths: only a path that matches `/` counts for `/`, the longest pattern first; `no` wins among equally long ones.
	f("ua: * | Content-Signal: /blog/ ai-train=no, search=yes", "")
	f("ua: * | Content-Signal: / ai-train=no, search=yes", "search=yes, ai-train=no")
	f("ua: * | Content-Signal: /*.pdf$ search=yes, ai-train=no | Content-Signal: ai-train=no, search=no",
		"search=no, ai-train=no")
	f("ua: * | Content-Signal: /$ ai-train=yes | Content-Signal: ai-train=no, search=no", "search=no, ai-train=yes")
	f("ua: * | Content-Signal: /* ai-train=no | Content-Signal: / ai-train=yes, search=yes", "search=yes, ai-train=no")
	f("ua: * | Content-Signal: * ai-train=no | Content-Signal: ai-train=yes", "ai-train=no")
	f("ua: * | Content-Signal: / ai-train=yes | Content-Signal: ai-train=no", "ai-train=no", 3) // the same paths
	f("ua: * | Content-Signal: /blog ai-train=no | Content-Signal: /blog ai-train=yes | Content-Signal: /b ai-train=yes",
		"", 3)
	f("ua: * | Content-Signal: /blog ai-train=no | Content-Signal: /Blog ai-train=yes", "")
	f("ua: * | Content-Signal: /a ai-train=no | a: / | ua: * | Content-Signal: /a ai-train=yes", "", 5)
}

// TestSignalsOfAgents shows what holds for each agent.
func TestSignalsOfAgents(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		var got []string
		for _, v := range answered(lines(text)).Report.Verdicts {
			if v.ContentSignal != nil {
				got = append(got, fmt.Sprintf("%s %s", v.Token, v.ContentSignal))
			}
		}
		if joined := strings.Join(got, "; "); joined != want {
			t.Errorf("%q: %s, want %s", text, joined, want)
		}
	}
	f("ua: GPTBot | Content-Signal: ai-train=no | a: / | ua: GPTBot | Content-Signal: ai-input=no | a: /",
		"GPTBot ai-input=no, ai-train=no")
	f("ua: a | Content-Signal: ai-train=no | ua: b | Content-Signal: search=yes",
		"a search=yes, ai-train=no; b search=yes")
	f("Content-Signal: ai-train=no | ua: a | Content-Signal: search=yes", "a search=yes") // the first is the file's
	f("ua: Googlebot | Content-Signal: /x ai-train=no | Content-Signal: / search=no", "Googlebot search=no; "+
		"Applebot search=no; Google-InspectionTool search=no; Googlebot-Image search=no; Googlebot-News search=no; Googlebot-Video search=no; "+
		"KagiBot search=no; Google-CloudVertexBot search=no")
	f("ua: Terra Cotta | Content-Signal: ai-train=no | a: / | ua: TerraCotta | Content-Signal: search=yes",
		"TerraCotta search=yes; TerraCotta search=yes, ai-train=no")
}

// TestSignalBounds shows that a file keeps a bounded number of facts, and that facts of other paths leave room for
// those of `/`.
func TestSignalBounds(t *testing.T) {
	var body strings.Builder
	body.WriteString("User-agent: *\n")
	for i := range 100 {
		fmt.Fprintf(&body, "Content-Signal: /%d ai-train=yes\n", i)
	}
	body.WriteString("Content-Signal: ai-train=no\n")
	for i := range 100 {
		fmt.Fprintf(&body, "Content-Signal: key-%d-%s=%d\n", i, strings.Repeat("x", 40), i)
	}
	got := string(answered(body.String()).Report.ContentSignal)
	if !strings.HasPrefix(got, "ai-train=no, key-0-x") || len(got) > maxSignal || strings.Count(got, ", ") < 8 {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if got = string(answered("User-agent: *\nContent-Signal: a=" + strings.Repeat("b", maxSignal) +
		", c=d\n").Report.ContentSignal); got != "c=d" {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// TestExplainedSignals shows the records of `check --json`.
func TestExplainedSignals(t *testing.T) {
	s := answered(
		lines(
			"Content-Signal: search=yes | ua: a | ua: b | Content-Signal: /x AI-Train=No, use=full, use=immediate, use=reference | Content-Signal: x"))
	out := Explain(s)
	if got := fmt.Sprintf("%q %+v", out.ContentSignal,
		out.Signals); got != `"search=yes" [{Line:1 Path: Scope:file Pairs:map[search:yes] Agents:[]} `+
		`{Line:4 Path:/x Scope:group Pairs:map[ai-train:no use:immediate reference] Agents:[a b]}]` {
		t.Error(got)
	}
}
