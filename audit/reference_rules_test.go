package audit

import (
	"slices"
	"strings"
)

// This file has the reference's reading of rules: patterns, the winning pattern, and the verdict.

// plainRules are the merged rules of some groups, with cached results.
type plainRules struct {
	lines   []plainRecord
	byStart map[string][]plainPattern // by the octets before the first `*` and a final `$`
	longest int                       // octets of the longest such start

	verdict Decision
	surely  bool // verdict is set
}

// plainPattern is a rule's normalized value.
type plainPattern struct {
	allow bool
	text  string
}

func newPlainRules(lines []plainRecord) *plainRules {
	r := &plainRules{lines: lines, byStart: map[string][]plainPattern{}}
	for _, line := range lines {
		if !plainNamesPath(line.value) {
			continue
		}
		text := plainNormal(line.value)
		r.add(line.key == "allow", text)
		// Google's code tries an allow of `…/index.htm…` that does not match again as its folder. That pattern is
		// the shorter one, so adding it makes no difference if the other matches.
		if slash := strings.LastIndex(text, "/"); line.key == "allow" && slash >= 0 && strings.HasPrefix(text[slash:],
			"/index.htm") {
			r.add(true, text[:slash]+"/$")
		}
	}
	return r
}

func (r *plainRules) add(allow bool, text string) {
	start, _, _ := strings.Cut(strings.TrimSuffix(text, "$"), "*")
	r.byStart[start] = append(r.byStart[start], plainPattern{allow, text})
	r.longest = max(r.longest, len(start))
}

// plainNamesPath reports whether a value is a path. An empty value states nothing, and one that begins with neither `/`
// nor `*` matches nothing.
func plainNamesPath(value string) bool {
	return strings.HasPrefix(value, "/") || strings.HasPrefix(value, "*")
}

// plainNormal writes octets above 0x7F as %XX, and the digits of %xx in upper case.
func plainNormal(value string) string {
	const hex, upper = "0123456789abcdefABCDEF", "0123456789ABCDEF"
	isHex := func(i int) bool { return i < len(value) && strings.IndexByte(hex, value[i]) >= 0 }
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c >= 0x80:
			b.Write([]byte{'%', upper[c/16], upper[c%16]})
		case c == '%' && isHex(i+1) && isHex(i+2):
			b.WriteString(strings.ToUpper(value[i : i+3]))
			i += 2
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// denies reports whether the rules deny the path: the longest matching pattern is a disallow, and no matching allow has
// its length.
func (r *plainRules) denies(path string) bool {
	allow, disallow := 0, 0
	// Only patterns whose octets before the first `*` are those of the path can match.
	for n := range min(len(path), r.longest) + 1 {
		for _, pattern := range r.byStart[path[:n]] {
			switch {
			case !plainMatch(pattern.text, path):
			case pattern.allow:
				allow = max(allow, len(pattern.text))
			default:
				disallow = max(disallow, len(pattern.text))
			}
		}
	}
	return disallow > allow
}

// plainMatch reports whether a pattern matches a path. `*` matches any octets, or none; `$` at the end matches the end
// of the path; any other octet matches itself. The path may continue after the pattern's end.
func plainMatch(pattern, path string) bool {
	ends := make([]bool, len(path)+1) // ends[i]: the pattern so far matches all of path[:i]
	ends[0] = true
	for k, c := range []byte(pattern) {
		switch {
		case c == '$' && k == len(pattern)-1:
			return ends[len(path)]
		case c == '*':
			for i := 1; i <= len(path); i++ {
				ends[i] = ends[i] || ends[i-1]
			}
		default:
			for i := len(path); i > 0; i-- {
				ends[i] = ends[i-1] && path[i-1] == c
			}
			ends[0] = false
		}
	}
	return slices.Contains(ends, true)
}

// decision is blocked if the rules deny `/`, a path that no rule names, and each path that a rule names. It is allowed
// if they deny none of these, else partial. The first two paths with different results decide.
func (r *plainRules) decision() Decision {
	if !r.surely {
		r.verdict, r.surely = r.tryPaths(), true
	}
	return r.verdict
}

func (r *plainRules) tryPaths() Decision {
	denied := r.denies("/")
	if r.denies("/dummy-testing-path-54321") != denied {
		return Partial
	}
	tried := map[string]bool{}
	for _, line := range r.lines {
		if !plainNamesPath(line.value) {
			continue
		}
		path := plainPath(line.value)
		if tried[path] {
			continue
		}
		tried[path] = true
		if r.denies(path) != denied {
			return Partial
		}
	}
	if denied {
		return Blocked
	}
	return Allowed
}

// plainPath returns the path that a rule names: its normalized value without a final `$` and without any `*`.
func plainPath(value string) string {
	path := strings.ReplaceAll(strings.TrimSuffix(plainNormal(value), "$"), "*", "")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return path
}

// count returns the number of lines with the key and a value that fits.
func (r *plainRules) count(key string, fits func(value string) bool) (n int) {
	for _, line := range r.lines {
		if line.key == key && fits(line.value) {
			n++
		}
	}
	return n
}

func anyValue(string) bool                    { return true }
func rootValue(value string) bool             { return value == "/" }
func valueWithoutQuery(value string) bool     { return !strings.Contains(value, "?") }
func someValueWithoutQuery(value string) bool { return value != "" && valueWithoutQuery(value) }

// dpi classifies the rules like the Data Provenance Initiative: values with a `?` are dropped; a disallow `/` without
// any allow line, even an empty one, is "all"; otherwise any disallow with a value is "some".
func (r *plainRules) dpi() DPI {
	switch {
	case r.count("disallow", rootValue) > 0 && r.count("allow", valueWithoutQuery) == 0:
		return DPIAll
	case r.count("disallow", someValueWithoutQuery) > 0:
		return DPISome
	}
	return DPINone
}
