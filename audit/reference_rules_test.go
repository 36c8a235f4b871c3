package audit

import (
	"slices"
	"strings"
)

// This file is the reference's reading of rules: patterns, which of them wins, what all of them amount to.

// plainRules are the merged rules of some groups, and what was found out of them.
type plainRules struct {
	lines   []plainRecord
	byStart map[string][]plainPattern // by what stands before the first `*` and a final `$`
	longest int                       // octets of the longest such start

	verdict Decision
	surely  bool // verdict was worked out
}

// plainPattern is a rule's value as it is compared.
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
		// Google's code tries an allow of `…/index.htm…` that does not match once more as its folder alone. That
		// pattern is the shorter of the two: it makes no difference to have it where the other matches.
		if slash := strings.LastIndex(text, "/"); line.key == "allow" && slash >= 0 && strings.HasPrefix(text[slash:], "/index.htm") {
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

// plainNamesPath reports whether a value is a path at all. An empty one says nothing, and one that begins with neither
// `/` nor `*` matches nothing.
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

// denies reports whether the rules deny the path: the longest pattern that matches is a disallow, and no allow is as
// long.
func (r *plainRules) denies(path string) bool {
	allow, disallow := 0, 0
	// No other pattern can match than one whose octets before the first `*` are the path's own.
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

// plainMatch reports whether a pattern matches a path: `*` stands for any octets, or none; `$` at the very end for the
// end of the path; anything else for itself; and behind the pattern's end the path may go on.
func plainMatch(pattern, path string) bool {
	ends := make([]bool, len(path)+1) // ends[i]: the pattern, as far as it was read, matches all of path[:i]
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

// decision is blocked if `/`, a path that nobody wrote and each path that a rule names are denied, allowed if none of
// them is, else partial. It is known at the first two paths that fare differently.
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

// plainPath is the path that a rule names: its value as it is compared, without a final `$` and without each `*`.
func plainPath(value string) string {
	path := strings.ReplaceAll(strings.TrimSuffix(plainNormal(value), "$"), "*", "")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return path
}

// count returns how many lines of the key have a value that fits.
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

// dpi reads the rules as the Data Provenance Initiative does: values with a `?` are dropped; `/` among the disallows
// and not one allow, be it empty, is "all"; else any disallow with a value is "some".
func (r *plainRules) dpi() DPI {
	switch {
	case r.count("disallow", rootValue) > 0 && r.count("allow", valueWithoutQuery) == 0:
		return DPIAll
	case r.count("disallow", someValueWithoutQuery) > 0:
		return DPISome
	}
	return DPINone
}
