package parser_test

import (
	"fmt"
	"strings"

	"github.com/bulkscan/bulkscan/parser"
)

// The reference computes the same answers by the plainest means, octet by octet and with strings, sharing no code with
// the package. In the Google dialect it follows Google's code: one pass for one agent and one path.

// dialects are all dialects.
var dialects = []parser.Dialect{parser.Google, parser.RFC, parser.GoogleExact}

// slowMatch matches by recursion: a `*` matches nothing, or one octet more. It remembers results for each rest of
// pattern and path, since it would take exponential time otherwise.
func slowMatch(pattern, path string) bool {
	known := map[[2]int]bool{}
	var match func(pattern, path string) bool
	match = func(pattern, path string) (matches bool) {
		at := [2]int{len(pattern), len(path)}
		if matches, ok := known[at]; ok {
			return matches
		}
		switch {
		case pattern == "":
			matches = true
		case pattern == "$":
			matches = path == ""
		case pattern[0] == '*':
			matches = match(pattern[1:], path) || path != "" && match(pattern, path[1:])
		default:
			matches = path != "" && path[0] == pattern[0] && match(pattern[1:], path[1:])
		}
		known[at] = matches
		return matches
	}
	return match(pattern, path)
}

// slowLines returns the lines of a body as they are read: without mark, truncated, without NUL and comment, trimmed.
func slowLines(body string, d parser.Dialect) (lines []string) {
	for _, octet := range []string{"\xEF", "\xBB", "\xBF"} {
		rest, ok := strings.CutPrefix(body, octet)
		if !ok {
			break
		}
		body = rest
	}
	body = strings.ReplaceAll(body, "\r\n", "\n")
	body = strings.ReplaceAll(body, "\r", "\n")
	for line := range strings.SplitSeq(body, "\n") {
		if d != parser.RFC && len(line) > 16663 {
			line = line[:16663]
		}
		line, _, _ = strings.Cut(line, "\x00")
		line, _, _ = strings.Cut(line, "#")
		lines = append(lines, strings.Trim(line, " \t\n\v\f\r"))
	}
	return lines
}

// slowSplit returns the key, one of user-agent, allow, disallow or something else, and the value.
func slowSplit(line string, d parser.Dialect) (key, value string) {
	key, value, ok := strings.Cut(line, ":")
	if !ok {
		if at := strings.IndexAny(line, " \t"); at >= 0 {
			second := strings.TrimLeft(line[at:], " \t")
			if !strings.ContainsAny(second, " \t") {
				key, value, ok = line[:at], second, true
			}
		}
	}
	if !ok {
		return "", ""
	}
	key, value = strings.Trim(key, " \t\n\v\f\r"), strings.Trim(value, " \t\n\v\f\r")
	key = slowLower(key)
	if d == parser.RFC {
		return key, value
	}
	if d == parser.Google && (key == "allowaitraining" || key == "disallowaitraining") {
		return "", "" // a preference, whatever its first letters are
	}
	for _, known := range [][]string{
		{"user-agent", "useragent", "user agent"}, {"allow"},
		{"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"},
	} {
		for _, spelling := range known {
			if strings.HasPrefix(key, spelling) {
				return known[0], value
			}
		}
	}
	return "", ""
}

// slowLower is strings.ToLower for ASCII alone.
func slowLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 32
		}
	}
	return string(b)
}

const slowUnreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

// slowNormal normalises a value, or a path of the RFC dialect.
func slowNormal(s string, d parser.Dialect, isPath bool) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		var octet byte
		n := 0
		if s[i] == '%' {
			n, _ = fmt.Sscanf(s[i:min(len(s), i+3)], "%%%02x", &octet)
		}
		switch {
		case n == 1 && i+2 < len(s) && strings.Trim(s[i+1:i+3], "0123456789abcdefABCDEF") == "":
			if d == parser.RFC && octet < 0x80 && strings.ContainsRune(slowUnreserved, rune(octet)) {
				b.WriteByte(octet)
			} else {
				fmt.Fprintf(&b, "%%%02X", octet)
			}
			i += 2
		case s[i] >= 0x80, d == parser.RFC && s[i] == '$' && (isPath || i < len(s)-1), isPath && s[i] == '*':
			fmt.Fprintf(&b, "%%%02X", s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// slowRulePath returns the path that a rule's value names, "" for none.
func slowRulePath(value string, d parser.Dialect) string {
	if value == "" || !strings.Contains("/*", value[:1]) {
		return ""
	}
	path := strings.TrimSuffix(slowNormal(value, d, false), "$")
	path = "/" + strings.TrimPrefix(strings.ReplaceAll(path, "*", ""), "/")
	if d == parser.RFC {
		if path = slowNormal(path, d, true); path == "/robots.txt" {
			return ""
		}
	}
	return path
}

// slowName returns the name in a user-agent value, "" for none.
func slowName(value string, d parser.Dialect) string {
	run := value[:len(value)-len(strings.TrimLeft(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"))]
	rest := strings.TrimPrefix(value, "*")
	switch {
	case value == "*", d != parser.RFC && rest != value && strings.Trim(rest[:1], " \t\n\v\f\r") == "":
		return "*"
	}
	return slowLower(run)
}

// slowLenient returns the names of the lenient reading.
func slowLenient(value string) (names [3]string) {
	const space = " \t\n\v\f\r"
	value = strings.Trim(value, space)
	names[0] = value
	if i := strings.IndexAny(value, "/;"); i >= 0 {
		names[1] = strings.Trim(value[:i], space)
	}
	if i := strings.IndexAny(value, space); i >= 0 {
		names[2] = value[:i]
	}
	return names
}

// slowDecide answers as File.Decide does.
func slowDecide(body, agent, path string, d parser.Dialect) (allow bool, line int) {
	if d == parser.RFC {
		path = slowNormal(path, d, true)
		if path == "/robots.txt" {
			return true, 0
		}
	}
	type best struct{ length, line int }
	var rules [2]struct{ allow, disallow best } // of the agent, of *
	var seen [2]bool                            // the current group names the agent, *
	everSeen, separator := false, false
	agent = slowLower(agent)
	for i, text := range slowLines(body, d) {
		key, value := slowSplit(text, d)
		switch key {
		case "user-agent":
			if separator {
				seen, separator = [2]bool{}, false
			}
			switch name := slowName(value, d); name {
			case "":
			case agent:
				seen[0], everSeen = true, true
				seen[1] = seen[1] || name == "*"
			case "*":
				seen[1] = true
			}
		case "allow", "disallow":
			separator = true
			for whose := range seen {
				if !seen[whose] {
					continue
				}
				pattern := slowNormal(value, d, false)
				matches := slowMatch(pattern, path)
				if slash := strings.LastIndex(pattern, "/"); !matches && key == "allow" && d != parser.RFC &&
					slash >= 0 && strings.HasPrefix(pattern[slash:], "/index.htm") {
					pattern = pattern[:slash+1] + "$"
					matches = slowMatch(pattern, path)
				}
				to := &rules[whose].disallow
				if key == "allow" {
					to = &rules[whose].allow
				}
				if matches && len(pattern) > to.length {
					*to = best{len(pattern), i + 1}
				}
			}
		}
	}
	r := rules[1]
	if everSeen {
		r = rules[0]
	}
	if r.disallow.length > r.allow.length {
		return false, r.disallow.line
	}
	return true, r.allow.line
}
