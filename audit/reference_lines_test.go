package audit

import (
	"slices"
	"strings"
)

// This file has the reference's reading of a body: lines, records, groups, names.

// plainRecord is a line with a key that concerns agents.
type plainRecord struct {
	line  int    // 1-based
	key   string // correctly spelled
	value string // without comment, trimmed
}

// asciiSpace is all that counts as white space.
const asciiSpace = " \t\n\v\f\r"

// plainRecords reads a body line by line.
func plainRecords(body string) (records []plainRecord) {
	for i, line := range plainLines(body) {
		line = line[:min(len(line), 16_663)]
		line, _, _ = strings.Cut(line, "\x00")
		line, _, _ = strings.Cut(line, "#")
		key, value, ok := plainSplit(strings.Trim(line, asciiSpace))
		if !ok {
			continue
		}
		if key = plainKey(strings.Trim(key, asciiSpace)); key != "" {
			records = append(records, plainRecord{i + 1, key, strings.Trim(value, asciiSpace)})
		}
	}
	return records
}

// plainLines drops a byte order mark, complete or cut, and splits the body at LF, CR LF and CR.
func plainLines(body string) []string {
	for _, octet := range []string{"\xEF", "\xBB", "\xBF"} {
		if !strings.HasPrefix(body, octet) {
			break
		}
		body = body[1:]
	}
	body = strings.ReplaceAll(body, "\r\n", "\n")
	body = strings.ReplaceAll(body, "\r", "\n")
	return strings.Split(body, "\n")
}

// plainSplit splits a line into key and value at the first colon. Without a colon, exactly two words are key and value.
func plainSplit(line string) (key, value string, ok bool) {
	if strings.Contains(line, ":") {
		return strings.Cut(line, ":")
	}
	words := strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' })
	if len(words) != 2 {
		return "", "", false
	}
	return words[0], words[1], true
}

// plainKeys are the spellings that are read as a key, also as a prefix (`allowed`, `user-agents`).
var plainKeys = map[string][]string{
	"user-agent": {"user-agent", "useragent", "user agent"},
	"allow":      {"allow"},
	"disallow":   {"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"},
}

// plainExtensions are the records that belong to agents. They have one spelling each.
var plainExtensions = []string{"crawl-delay", "request-rate", "visit-time", "content-signal", "content-usage"}

// plainKey returns the meaning of a key, or "" if it does not concern agents.
func plainKey(text string) string {
	const longest = len("content-signal")
	if text = plainLower(text); text == "allowaitraining" || text == "disallowaitraining" {
		return "" // preferences, whatever their first letters are
	}
	text = text[:min(len(text), longest+1)]
	if slices.Contains(plainExtensions, text) {
		return text
	}
	for key, spellings := range plainKeys {
		for _, spelling := range spellings {
			if strings.HasPrefix(text, spelling) {
				return key
			}
		}
	}
	return ""
}

// plainLower changes only the case of ASCII letters.
func plainLower(text string) string {
	b := []byte(text)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c - 'A' + 'a'
		}
	}
	return string(b)
}

// plainGroup is a run of user-agent lines with the rules after them, and the extension records after the first of them.
type plainGroup struct {
	agents []plainRecord
	rules  []plainRecord
	said   []plainRecord
}

// plainGroups groups records. Records before any user-agent line belong to no group. Extensions neither begin nor end a
// group or its list of agents.
func plainGroups(records []plainRecord) (groups []plainGroup) {
	listing := false // further user-agent lines belong to the last group
	for _, r := range records {
		switch {
		case r.key == "user-agent":
			if !listing {
				groups = append(groups, plainGroup{})
				listing = true
			}
			last := &groups[len(groups)-1]
			last.agents = append(last.agents, r)
		case len(groups) == 0:
		case slices.Contains(plainExtensions, r.key):
			last := &groups[len(groups)-1]
			last.said = append(last.said, r)
		default:
			listing = false
			last := &groups[len(groups)-1]
			last.rules = append(last.rules, r)
		}
	}
	return groups
}

// plainName returns the name in a user-agent value: `*`, which may be followed by white space and any text; or the
// letters, `-` and `_` at its beginning, in lower case; or "".
func plainName(value string) string {
	if rest, ok := strings.CutPrefix(value, "*"); ok {
		if rest == "" || strings.ContainsRune(asciiSpace, rune(rest[0])) {
			return "*"
		}
		return ""
	}
	name := plainLower(value)
	behind := strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz-_")
	return strings.TrimSuffix(name, behind)
}

// plainMeant returns the names that a value may mean, in the order of trying, in lower case: all of it, the part before
// a `/` or `;`, and the part before white space.
func plainMeant(value string) []string {
	names := []string{plainLower(value)}
	for _, separators := range []string{"/;", asciiSpace} {
		if end := strings.IndexAny(value, separators); end >= 0 {
			names = append(names, plainLower(strings.Trim(value[:end], asciiSpace)))
		}
	}
	return names
}
