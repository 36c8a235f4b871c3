package audit

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// This file has the reference's reading of the extension records that belong to agents. Each belongs to the agents that
// its group has named so far. The first valid record of an agent counts; of Content-Signal and Content-Usage all that
// concern `/` count.

// plainValues are the values of such records for an agent; zero for none.
type plainValues struct {
	delay, rate           float64
	hasDelay              bool
	visitFrom, visitUntil int // minutes
	hasVisit              bool
	signal                string
	usage                 string
}

// values returns the values of an agent; zero values for a nil agent.
func (p *plainFile) values(a *plainAgent) (v plainValues) {
	if a == nil {
		return v
	}
	var usages []plainUsage
	var signals []plainSignal
	for _, g := range a.groups {
		for _, r := range p.groups[g].said {
			named := false
			for _, agent := range p.groups[g].agents {
				named = named || agent.line < r.line && a.lines[agent.line]
			}
			if named {
				v.take(r)
			}
			if named && r.key == "content-signal" {
				signals = append(signals, readPlainSignal(r.value)...)
			}
			if usage, ok := readPlainUsage(r.value); ok && named && r.key == "content-usage" && plainMatch(usage.path, "/") {
				usages = append(usages, usage)
			}
		}
	}
	v.usage = strongest(usages)
	v.signal = strongestSignals(signals)
	return v
}

// plainUsage is a Content-Usage value: a path and its preferences.
type plainUsage struct {
	path string
	said map[string]string // train-ai and search; y, n
}

// usageMember is a member of a dictionary. The reference does not know lists and strings.
var usageMember = regexp.MustCompile(`^([a-z*][a-z0-9_.*-]*)(?:=([A-Za-z*][A-Za-z0-9_-]*))?$`)

// readPlainUsage reads a value. The last member of each known key counts.
func readPlainUsage(value string) (u plainUsage, ok bool) {
	u.said = map[string]string{}
	if strings.HasPrefix(value, "/") {
		u.path, value, _ = strings.Cut(value, " ")
	}
	for member := range strings.SplitSeq(value, ",") {
		m := usageMember.FindStringSubmatch(strings.TrimSpace(member))
		if m == nil {
			return u, false
		}
		delete(u.said, m[1])
		if m[2] == "y" || m[2] == "n" {
			u.said[m[1]] = m[2]
		}
	}
	return u, true
}

// strongest combines usages: those with the longest path count, and a refusal among these wins.
func strongest(usages []plainUsage) string {
	longest := 0
	for _, u := range usages {
		longest = max(longest, len(u.path))
	}
	var said []string
	for _, key := range []string{"train-ai", "search"} {
		answers := ""
		for _, u := range usages {
			if len(u.path) == longest {
				answers += u.said[key]
			}
		}
		if strings.Contains(answers, "n") {
			said = append(said, key+"=n")
		} else if answers != "" {
			said = append(said, key+"=y")
		}
	}
	return strings.Join(said, ", ")
}

func (v *plainValues) take(r plainRecord) {
	switch r.key {
	case "crawl-delay":
		if seconds, ok := plainDelay(r.value); ok && !v.hasDelay {
			v.delay, v.hasDelay = seconds, true
		}
	case "request-rate":
		if rate, ok := plainRate(r.value); ok && v.rate == 0 {
			v.rate = rate
		}
	case "visit-time":
		if from, until, ok := plainVisit(r.value); ok && !v.hasVisit {
			v.visitFrom, v.visitUntil, v.hasVisit = from, until, true
		}
	}
}

var (
	delayShape = regexp.MustCompile(`^(\d{1,9}\.?\d*|\.\d+)$`)
	rateShape  = regexp.MustCompile(`^(\d{1,9})[ \t]*/[ \t]*(\d{1,9})([smhSMH]?)(?:[ \t]+(.+))?$`)
	visitShape = regexp.MustCompile(`^(\d\d)(\d\d)[ \t]*-[ \t]*(\d\d)(\d\d)$`)
	// visible ASCII except quotation marks, ; and =
	signalShape = regexp.MustCompile(`^([!#-&(-:<>-~]+)[ \t]*=[ \t]*([!#-&(-:<>-~]+)$`)
)

// plainDelay reads a decimal number of seconds without sign.
func plainDelay(value string) (seconds float64, ok bool) {
	if !delayShape.MatchString(value) || len(value) > 40 {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(value, 64)
	return seconds, err == nil
}

// plainRate reads a number of documents in a number of seconds, minutes or hours. If hours of the day follow, they must
// be valid.
func plainRate(value string) (rate float64, ok bool) {
	m := rateShape.FindStringSubmatch(value)
	if m == nil {
		return 0, false
	}
	documents, _ := strconv.Atoi(m[1])
	time, _ := strconv.Atoi(m[2])
	time *= map[string]int{"": 1, "s": 1, "m": 60, "h": 3600}[strings.ToLower(m[3])]
	if _, _, valid := plainVisit(m[4]); m[4] != "" && !valid || documents == 0 || time == 0 {
		return 0, false
	}
	return float64(documents) / float64(time), true
}

// plainVisit reads two times of day, in minutes after midnight. 2400 is the end of the day, and as a start the
// beginning of the next.
func plainVisit(value string) (from, until int, ok bool) {
	m := visitShape.FindStringSubmatch(value)
	if m == nil {
		return 0, 0, false
	}
	var n [5]int
	for i := 1; i < len(m); i++ {
		n[i], _ = strconv.Atoi(m[i])
	}
	from, until = n[1]*60+n[2], n[3]*60+n[4]
	return from % 1440, until, n[2] < 60 && n[4] < 60 && from <= 1440 && until <= 1440
}

// plainSignal is a pair of a Content-Signal record for a path that matches `/`.
type plainSignal struct {
	path, key, value string // path is "" for all paths
}

// readPlainSignal returns the pairs of a value whose path matches `/`, none if any part of it is no valid pair. Known
// keys have fixed values, other keys any.
func readPlainSignal(value string) (pairs []plainSignal) {
	path := ""
	if strings.HasPrefix(value, "/") || strings.HasPrefix(value, "*") {
		end := strings.IndexAny(value, " \t")
		if end < 0 {
			return nil
		}
		path, value = value[:end], value[end:]
	}
	for pair := range strings.SplitSeq(plainLower(value), ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		m := signalShape.FindStringSubmatch(pair)
		if m == nil {
			return nil
		}
		values, known := map[string]string{
			"search": " yes no ", "ai-input": " yes no ", "ai-train": " yes no ", "use": " immediate reference full ",
		}[m[1]]
		if known && !strings.Contains(values, " "+m[2]+" ") {
			return nil
		}
		pairs = append(pairs, plainSignal{path, m[1], m[2]})
	}
	if path != "" && !plainMatch(path, "/") {
		return nil
	}
	return pairs
}

// strongestSignals combines pairs of a few keys: for each key those with the longest path count, `/` being no longer
// than none, and the narrowest of these wins.
func strongestSignals(pairs []plainSignal) string {
	weight := func(p plainSignal) int {
		if p.path == "/" {
			return 0
		}
		return len(p.path)
	}
	keys := []string{"search", "ai-input", "ai-train", "use"}
	for _, p := range pairs {
		if !slices.Contains(keys, p.key) {
			keys = append(keys, p.key)
		}
	}
	var known, others []string
	for _, key := range keys {
		longest, values := 0, []string{}
		for _, p := range pairs {
			if p.key == key {
				longest = max(longest, weight(p))
			}
		}
		for _, p := range pairs {
			if p.key == key && weight(p) == longest && !slices.Contains(values, p.value) {
				values = append(values, p.value)
			}
		}
		isKnown := slices.Contains(keys[:4], key)
		for _, value := range values {
			wider := value == "yes" && slices.Contains(values, "no") || value == "full" && slices.Contains(values, "reference")
			switch pair := key + "=" + value; {
			case isKnown && !wider:
				known = append(known, pair)
			case !isKnown:
				others = append(others, pair)
			}
		}
	}
	return strings.Join(append(known, others...), ", ")
}
