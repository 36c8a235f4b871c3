package audit

import (
	"slices"
	"strings"
)

// This file is the reference's reading of a body: lines, records, groups, names.

// plainRecord is a line with a key that matters to agents.
type plainRecord struct {
	line  int    // 1-based
	key   string // as it is spelled rightly
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

// plainLines drops a byte order mark, or as much as there is of one, and cuts the body at LF, CR LF and CR.
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

// plainSplit parts key and value at the first colon; where there is none, exactly two words are key and value.
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

// plainKeys are the spellings that are read as a key, also with more behind them (`allowed`, `user-agents`).
var plainKeys = map[string][]string{
	"user-agent": {"user-agent", "useragent", "user agent"},
	"allow":      {"allow"},
	"disallow":   {"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"},
}

// plainExtensions are the records that belong to agents; nobody reads other spellings.
var plainExtensions = []string{"crawl-delay", "request-rate", "visit-time", "content-signal", "content-usage"}

// plainKey returns what a key means, "" for nothing that matters to agents.
func plainKey(text string) string {
	const longest = len("content-signal")
	text = plainLower(text[:min(len(text), longest+1)])
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

// plainLower changes the case of ASCII letters and of nothing else.
func plainLower(text string) string {
	b := []byte(text)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c - 'A' + 'a'
		}
	}
	return string(b)
}

// plainGroup is user-agent lines in a row, the rules behind them, and the extension records behind the first of them.
type plainGroup struct {
	agents []plainRecord
	rules  []plainRecord
	said   []plainRecord
}

// plainGroups makes groups of records. What stands before any user-agent line belongs to none. Extensions neither begin
// nor end a group, nor its list of agents.
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

// plainName is whom a user-agent value names: `*`, which may have white space and anything behind it, or the letters,
// `-` and `_` that it begins with, in lower case; "" for nobody.
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

// plainMeant are the names that somebody may have meant by a value, in the order in which they are tried: all of it,
// what stands before a `/` or `;`, what stands before white space. All in lower case.
func plainMeant(value string) []string {
	names := []string{plainLower(value)}
	for _, separators := range []string{"/;", asciiSpace} {
		if end := strings.IndexAny(value, separators); end >= 0 {
			names = append(names, plainLower(strings.Trim(value[:end], asciiSpace)))
		}
	}
	return names
}
