package parser_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/bulkscan/bulkscan/parser"
)

// Changes to a body that must not change the answers: line ends, the case of keys and names, comments and blank lines,
// and the order of groups. Each is tried on the bodies of the vectors, on seeds, on generated bodies, and on real ones
// if available.

// eachBody calls check with each body, its line ends converted to LF, in each dialect.
func eachBody(t *testing.T, check func(t *testing.T, body []byte, d parser.Dialect)) {
	var bodies [][]byte
	for _, v := range readVectors(t) {
		if len(v.body) < 1<<16 {
			bodies = append(bodies, v.body)
		}
	}
	for _, seed := range seeds {
		bodies = append(bodies, []byte(seed))
	}
	checkAll(t, append(bodies, generated(150)...), check)
	t.Run("real bodies", func(t *testing.T) {
		var some [][]byte
		for i, body := range bodiesOf(t, "modern-ai") {
			if i%12 == 0 && len(body) < 1<<13 {
				some = append(some, body)
			}
		}
		checkAll(t, some, check)
	})
}

func checkAll(t *testing.T, bodies [][]byte, check func(t *testing.T, body []byte, d parser.Dialect)) {
	t.Helper()
	for _, d := range dialects {
		for _, body := range bodies {
			body = bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))
			body = bytes.ReplaceAll(body, []byte("\r"), []byte("\n"))
			if check(t, body, d); t.Failed() {
				t.Fatalf("%v: of the body\n%.3000q", d, body)
			}
		}
	}
}

// askers are agents to ask about, besides the first that a body names.
var askers = []string{"Googlebot", "gptbot", "a", "B", "foo", "nobody", "*"}

// asked are paths to ask about, besides those of a body's first rules.
var asked = [][]byte{[]byte("/"), []byte("/x"), []byte("/private/index.html"), []byte("/robots.txt"),
	[]byte("/a%62?c=*$")}

// asks calls visit with agents and paths that are relevant to the file.
func asks(file *parser.File, visit func(agent string, path []byte)) {
	agents, paths := askers, asked
	for i := range min(file.Agents(), 4) {
		agents = append(agents[:len(agents):len(agents)], string(file.Agent(i).Name))
	}
	for i := range file.Records() {
		if r := file.Record(i); r.Key == parser.KeyAllow || r.Key == parser.KeyDisallow {
			if path, ok := parser.AppendRulePath(nil, r.Value); ok && len(paths) < 12 {
				paths = append(paths[:len(paths):len(paths)], path)
			}
		}
	}
	for _, agent := range agents {
		for _, path := range paths {
			visit(agent, path)
		}
	}
}

// sameDecisions checks that two files give the same decisions; line converts line numbers of the first to the second.
func sameDecisions(t *testing.T, was, is *parser.File, line func(int) int) {
	t.Helper()
	asks(was, func(agent string, path []byte) {
		old, now := was.Decide(agent, path), is.Decide(agent, path)
		if old.Allow != now.Allow || (old.Agent < 0) != (now.Agent < 0) || line != nil && now.Line != line(old.Line) {
			t.Errorf("%s on %s: %+v, was %+v", agent, path, now, old)
		}
	})
}

// sameRecords checks that two files have the same records. line is as in sameDecisions; text compares two keys or
// names.
func sameRecords(t *testing.T, was, is *parser.File, line func(int) int, text func(a, b []byte) bool) {
	t.Helper()
	if was.Records() != is.Records() || was.Groups() != is.Groups() || was.Agents() != is.Agents() {
		t.Errorf("%d records, %d groups, %d agents, were %d, %d, %d", is.Records(), is.Groups(), is.Agents(), was.Records(),
			was.Groups(), was.Agents())
		return
	}
	for i := range was.Records() {
		old, now := was.Record(i), is.Record(i)
		value := bytes.Equal
		if old.Key == parser.KeyUserAgent {
			value = text
		}
		if now.Line != line(old.Line) || now.Group != old.Group || now.Key != old.Key || now.Flags != old.Flags ||
			!text(now.KeyText, old.KeyText) || !value(now.Value, old.Value) {
			t.Errorf("record %+v, was %+v", now, old)
		}
	}
	for i := range was.Agents() {
		old, now := was.Agent(i), is.Agent(i)
		if now.Line != line(old.Line) || now.Star != old.Star || !text(now.Name, old.Name) || !text(now.Value, old.Value) {
			t.Errorf("agent %+v, was %+v", now, old)
		}
	}
}

func sameLine(line int) int { return line }

// scanned returns the lines of a body.
func scanned(body []byte, d parser.Dialect) (lines []parser.Line) {
	for s := parser.NewScanner(body, d); s.Next(); {
		lines = append(lines, s.Line())
	}
	return lines
}

// TestLineEndsDoNotMatter: LF, CR LF and CR are equivalent.
func TestLineEndsDoNotMatter(t *testing.T) {
	eachBody(t, func(t *testing.T, body []byte, d parser.Dialect) {
		var was, is parser.File
		was.ParseDialect(body, d)
		old := scanned(body, d)
		mixed := bytes.ReplaceAll(bytes.ReplaceAll(body, []byte("\n"), []byte("\r")), []byte("\r\r"), []byte("\r\n\r"))
		for _, other := range [][]byte{
			bytes.ReplaceAll(body, []byte("\n"), []byte("\r\n")),
			bytes.ReplaceAll(body, []byte("\n"), []byte("\r")),
			mixed,
		} {
			is.ParseDialect(other, d)
			if is.Lines() != was.Lines() || is.HasBOM() != was.HasBOM() {
				t.Errorf("%d lines, mark %v, was %d, %v", is.Lines(), is.HasBOM(), was.Lines(), was.HasBOM())
			}
			sameRecords(t, &was, &is, sameLine, bytes.Equal)
			sameDecisions(t, &was, &is, sameLine)
			for i, now := range scanned(other, d) {
				if i >= len(old) || now.Kind != old[i].Kind || now.Key != old[i].Key || now.Flags != old[i].Flags {
					t.Errorf("%d lines, line %d is %+v", len(old), i+1, now)
					break
				}
			}
		}
	})
}

// recased returns the body with the other case of the ASCII letters in keys and user-agent lines.
func recased(body []byte, d parser.Dialect, convert func(byte) byte) []byte {
	body = bytes.Clone(body)
	for _, l := range scanned(body, d) {
		text := l.KeyText
		if l.Key == parser.KeyUserAgent {
			text = body[l.Start:l.End]
		}
		for i, c := range text {
			text[i] = convert(c) // a view of the body
		}
	}
	return body
}

func upperCase(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
}

func lowerCase(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c - 'A' + 'a'
	}
	return c
}

func oddCase(c byte) byte {
	if c&2 == 0 {
		return upperCase(c)
	}
	return lowerCase(c)
}

func sameButForCase(a, b []byte) bool { return bytes.Equal(lowered(a), lowered(b)) }

func lowered(text []byte) []byte {
	out := make([]byte, len(text))
	for i, c := range text {
		out[i] = lowerCase(c)
	}
	return out
}

// TestCaseDoesNotMatter: the case of keys and names does not matter, in the file or in questions.
func TestCaseDoesNotMatter(t *testing.T) {
	notUnderRace(t)
	eachBody(t, func(t *testing.T, body []byte, d parser.Dialect) {
		var was, is parser.File
		was.ParseDialect(body, d)
		for _, convert := range []func(byte) byte{upperCase, lowerCase, oddCase} {
			is.ParseDialect(recased(body, d, convert), d)
			sameRecords(t, &was, &is, sameLine, sameButForCase)
			sameDecisions(t, &was, &is, sameLine)
			asks(&was, func(agent string, path []byte) {
				other := []byte(agent)
				for i, c := range other {
					other[i] = convert(c)
				}
				if old, now := was.Decide(agent, path), was.Decide(string(other), path); old != now {
					t.Errorf("%s on %s: %+v, as %s %+v", agent, path, old, other, now)
				}
			})
		}
	})
}

// TestCommentsDoNotMatter: comments at the end of lines change nothing; comments and blank lines between lines change
// only line numbers.
func TestCommentsDoNotMatter(t *testing.T) {
	eachBody(t, func(t *testing.T, body []byte, d parser.Dialect) {
		var was, is parser.File
		was.ParseDialect(body, d)
		var behind, between []byte
		for _, l := range scanned(body, d) {
			text, end, _ := bytes.Cut(body[l.Start:l.End], []byte("\n"))
			ended := len(text) < l.End-l.Start
			behind = append(append(behind, text...), "# user-agent: a # disallow: /x"...)
			if ended {
				behind = append(behind, '\n')
			}
			between = append(append(between, text...), "\n# user-agent: a\n \t\n"...)
			if len(end) > 0 {
				t.Fatalf("line %d has two ends", l.Number)
			}
		}

		is.ParseDialect(behind, d)
		if is.Lines() != was.Lines() {
			t.Errorf("%d lines, were %d", is.Lines(), was.Lines())
		}
		sameRecords(t, &was, &is, sameLine, bytes.Equal)
		sameDecisions(t, &was, &is, sameLine)

		is.ParseDialect(between, d)
		if is.Lines() != 3*was.Lines() {
			t.Errorf("%d lines, were %d", is.Lines(), was.Lines())
		}
		spread := func(line int) int { return max(3*line-2, 0) }
		sameRecords(t, &was, &is, spread, bytes.Equal)
		sameDecisions(t, &was, &is, spread)
	})
}

// chunk is a group as text, and the number of its first line.
type chunk struct {
	text  []byte
	first int
}

// chunks returns the text before the first group, and each group.
func chunks(body []byte, file *parser.File) (all []chunk) {
	all = append(all, chunk{first: 1})
	next := 0
	for _, l := range scanned(body, file.Dialect()) {
		text := body[l.Start:l.End]
		if next < file.Groups() {
			if start, _ := file.GroupRecords(uint32(next)); file.Record(start).Line == l.Number {
				all, next = append(all, chunk{first: l.Number}), next+1
			}
		}
		now := &all[len(all)-1]
		if now.text = append(now.text, text...); text[len(text)-1] != '\n' {
			now.text = append(now.text, '\n')
		}
	}
	return all
}

// TestOrderOfGroupsDoesNotMatter: whole groups may be moved. Text before the first stays there, since it is in no
// group. A last group without rules gets an empty rule, or it would join the group after it.
func TestOrderOfGroupsDoesNotMatter(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 21))
	shuffled := 0
	eachBody(t, func(t *testing.T, body []byte, d parser.Dialect) {
		var was, is parser.File
		was.ParseDialect(body, d)
		if was.Groups() < 2 || body[0] == 0xEF { // a byte order mark must stay first
			return
		}
		distinct := true // no agent is in two groups, so that the deciding line is the same, too
		for i := range was.Agents() {
			distinct = distinct && len(was.AgentGroups(i)) == 1
		}
		all := chunks(body, &was)
		all[len(all)-1].text = append(all[len(all)-1].text, "disallow:\n"...)
		groups := all[1:]
		random.Shuffle(len(groups), func(i, k int) { groups[i], groups[k] = groups[k], groups[i] })

		var other []byte
		moved := map[int]int{}
		line := 0
		for _, c := range all {
			for i := range bytes.Count(c.text, []byte("\n")) {
				line++
				moved[c.first+i] = line
			}
			other = append(other, c.text...)
		}
		is.ParseDialect(other, d)
		shuffled++
		if !distinct {
			sameDecisions(t, &was, &is, nil)
			return
		}
		sameDecisions(t, &was, &is, func(line int) int { return moved[line] })
	})
	if shuffled < 100 {
		t.Errorf("only %d bodies have groups to move", shuffled)
	}
}

// answers writes all answers of a file.
func answers(file *parser.File) string {
	var b bytes.Buffer
	fmt.Fprintln(&b, file.Dialect(), file.Lines(), file.HasBOM(), file.Records(), file.Groups(), file.Agents(),
		file.Star(), file.Complete())
	for k := parser.Key(0); k < parser.NumKeys; k++ {
		fmt.Fprint(&b, file.Count(k), " ")
	}
	for i := range file.Records() {
		r := file.Record(i)
		fmt.Fprintf(&b, "\n%d %d %d %d %q %q", r.Line, r.Group, r.Key, r.Flags, r.KeyText, r.Value)
	}
	for g := range file.Groups() {
		start, end := file.GroupRecords(uint32(g))
		fmt.Fprint(&b, "\n", start, end)
	}
	for i := range file.Agents() {
		a := file.Agent(i)
		fmt.Fprintf(&b, "\n%q %q %d %v %v %+v %+v", a.Name, a.Value, a.Line, a.Star, file.AgentGroups(i), file.AgentSurvey(i),
			file.Survey(file.AgentGroups(i)))
	}
	for _, agent := range askers {
		fmt.Fprint(&b, "\n", file.Find(agent))
	}
	asks(file, func(agent string, path []byte) {
		fmt.Fprintf(&b, "\n%+v %v", file.Decide(agent, path), file.Allows(agent, "https://example.com"+string(path)))
	})
	fmt.Fprintf(&b, "\n%+v %+v", file.DecideIn(nil, nil), file.Survey(nil))
	return b.String()
}

// TestFilesForget: a reused File answers like a new one.
func TestFilesForget(t *testing.T) {
	notUnderRace(t)
	var used parser.File
	eachBody(t, func(t *testing.T, body []byte, d parser.Dialect) {
		var fresh parser.File
		fresh.ParseDialect(body, d)
		want := answers(&fresh)
		used.ParseDialect(body, d) // after another body, in another dialect or not, or the same body
		if got := answers(&used); got != want {
			t.Errorf("used:\n%s\nfresh:\n%s", got, want)
		}
		if len(body)%3 == 0 {
			used.Reset()
		}
		used.ParseDialect(body, 1-d)
		used.Decide("a", []byte("/x"))
		used.ParseDialect(body, d)
		if got := answers(&used); got != want {
			t.Errorf("used again:\n%s\nfresh:\n%s", got, want)
		}
	})
}

// TestOrderOfQuestionsDoesNotMatter: no question changes the answer to another.
func TestOrderOfQuestionsDoesNotMatter(t *testing.T) {
	type question struct {
		agent, path string
		answer      parser.Decision
	}
	random := rand.New(rand.NewPCG(2, 22))
	eachBody(t, func(t *testing.T, body []byte, d parser.Dialect) {
		var file parser.File
		file.ParseDialect(body, d)
		var questions []question
		asks(&file, func(agent string, path []byte) {
			questions = append(questions, question{agent, string(path), file.Decide(agent, path)})
		})
		var surveys []parser.Survey
		for i := range file.Agents() {
			surveys = append(surveys, file.Survey(file.AgentGroups(i)))
		}
		random.Shuffle(len(questions), func(i, k int) { questions[i], questions[k] = questions[k], questions[i] })
		for n, q := range questions {
			if now := file.Decide(q.agent, []byte(q.path)); now != q.answer {
				t.Errorf("%s on %s: %+v, was %+v", q.agent, q.path, now, q.answer)
			}
			if i := n % (len(surveys) + 1); i < len(surveys) {
				if now := file.Survey(file.AgentGroups(i)); now != surveys[i] {
					t.Errorf("%s: %+v, was %+v", file.Agent(i).Name, now, surveys[i])
				}
			}
			if agent := q.answer.Agent; agent >= 0 {
				now := file.DecideIn(file.AgentGroups(agent), []byte(q.path))
				if now.Agent = agent; now != q.answer {
					t.Errorf("%s on %s: by its groups %+v, was %+v", q.agent, q.path, now, q.answer)
				}
			}
		}
	})
}
