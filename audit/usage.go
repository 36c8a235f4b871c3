package audit

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/parser"
)

// This file reads Content-Usage values (IETF AIPREF): a path and a Dictionary of preferences (RFC 9651).

// Preference is the statement of a Content-Usage dictionary on one use. The zero value is Unstated.
type Preference uint8

// Preferences for one use.
const (
	Unstated Preference = iota
	UseAllowed
	UseRefused
)

// String returns "", "y" or "n".
func (p Preference) String() string { return [...]string{"", "y", "n", ""}[p&3] }

// Preferences are the statements on all uses. In the zero value all are Unstated.
type Preferences struct{ TrainAI, Search Preference }

// String returns the preferences as a Dictionary in a fixed order, such as `train-ai=n, search=y`, or "" if none is
// stated. It does not allocate.
func (p Preferences) String() string {
	return [3][3]string{
		{"", "search=y", "search=n"},
		{"train-ai=y", "train-ai=y, search=y", "train-ai=y, search=n"},
		{"train-ai=n", "train-ai=n, search=y", "train-ai=n, search=n"},
	}[p.TrainAI%3][p.Search%3]
}

// PreferencesOf is the reverse of Preferences.String.
func PreferencesOf(text string) (p Preferences) {
	for p.TrainAI = range Preference(3) {
		for p.Search = range Preference(3) {
			if p.String() == text {
				return p
			}
		}
	}
	return Preferences{}
}

// Usage is a Content-Usage value (IETF AIPREF): preferences for paths that match Path, a pattern like those of rules.
type Usage struct {
	Path []byte // "" for all paths
	Preferences
}

// rootUsage is the statement of Content-Usage records on `/`.
type rootUsage struct {
	weight int32 // length of the deciding pattern plus one; 0 for none
	Preferences
}

// atRoot returns the value's statement on `/`; ok is false if it has none. A pattern that matches `/` contains only
// `/`, `*` and `$`, so it needs no normalization. A value without a path weighs less than any value with one.
func (u *Usage) atRoot() (at rootUsage, ok bool) {
	if len(u.Path) > 0 && !parser.Match(u.Path, []byte("/")) {
		return rootUsage{}, false
	}
	return rootUsage{weight: int32(len(u.Path)) + 1, Preferences: u.Preferences}, true
}

// join adds the statement of another record: the longer pattern wins; for equal lengths a refusal wins.
func (u *rootUsage) join(o rootUsage) {
	switch {
	case o.weight > u.weight:
		*u = o
	case o.weight == u.weight:
		u.TrainAI, u.Search = max(u.TrainAI, o.TrainAI), max(u.Search, o.Search)
	}
}

// ParseUsage reads a Content-Usage value: an optional path with white space after it, and a Dictionary (RFC 9651 §3.2).
// It reports whether the Dictionary is valid and not empty. It ignores keys other than `train-ai` and `search`, and
// values other than `y` and `n`.
func ParseUsage(value []byte) (Usage, bool) {
	var u Usage
	if len(value) > 0 && value[0] == '/' {
		end := bytes.IndexAny(value, " \t")
		if end < 0 {
			return Usage{}, false
		}
		u.Path, value = value[:end], bytes.TrimLeft(value[end:], " \t")
	}
	p := fieldParser{rest: value}
	if !p.dictionary(&u) || len(bytes.Trim(value, " ")) == 0 {
		return Usage{}, false
	}
	return u, true
}

// fieldParser checks the syntax of Structured Field Values (RFC 9651 §4.2) and keeps only the two preferences. Its
// methods consume what they read and report whether it was well formed.
type fieldParser struct{ rest []byte }

// peek returns the next octet, 0 at the end.
func (p *fieldParser) peek() byte {
	if len(p.rest) == 0 {
		return 0
	}
	return p.rest[0]
}

// next consumes the octet if it is the next one.
func (p *fieldParser) next(c byte) bool {
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// take consumes and returns octets while ok holds.
func (p *fieldParser) take(ok func(byte) bool) []byte {
	n := 0
	for n < len(p.rest) && ok(p.rest[n]) {
		n++
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

// dictionary implements RFC 9651 §4.2.2.
func (p *fieldParser) dictionary(u *Usage) bool {
	p.rest = bytes.Trim(p.rest, " ")
	for len(p.rest) > 0 {
		key, ok := p.key()
		if !ok {
			return false
		}
		preference := Unstated
		if p.next('=') {
			start := p.rest
			if p.peek() == '(' {
				ok = p.innerList()
			} else if ok = p.bareItem(); ok {
				switch string(start[:len(start)-len(p.rest)]) {
				case "y":
					preference = UseAllowed
				case "n":
					preference = UseRefused
				}
			}
		}
		if !ok || !p.parameters() {
			return false
		}
		switch string(key) {
		case "train-ai":
			u.TrainAI = preference
		case "search":
			u.Search = preference
		}
		p.take(isBlank)
		if len(p.rest) == 0 {
			return true
		}
		if !p.next(',') {
			return false
		}
		if p.take(isBlank); len(p.rest) == 0 {
			return false
		}
	}
	return true
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isAlpha(c byte) bool { return isLower(c | 0x20) }

// key implements RFC 9651 §4.2.3.3.
func (p *fieldParser) key() ([]byte, bool) {
	if c := p.peek(); !isLower(c) && c != '*' {
		return nil, false
	}
	return p.take(func(c byte) bool {
		return isLower(c) || isDigit(c) || c == '_' || c == '-' || c == '.' || c == '*'
	}), true
}

// innerList implements RFC 9651 §4.2.1.2, without the parameters that follow the list.
func (p *fieldParser) innerList() bool {
	p.next('(')
	for {
		p.take(func(c byte) bool { return c == ' ' })
		if p.next(')') {
			return true
		}
		if !p.bareItem() || !p.parameters() {
			return false
		}
		if c := p.peek(); c != ' ' && c != ')' {
			return false
		}
	}
}

// parameters implements RFC 9651 §4.2.3.2.
func (p *fieldParser) parameters() bool {
	for p.next(';') {
		p.take(func(c byte) bool { return c == ' ' })
		if _, ok := p.key(); !ok {
			return false
		}
		if p.next('=') && !p.bareItem() {
			return false
		}
	}
	return true
}

// bareItem implements RFC 9651 §4.2.3.1.
func (p *fieldParser) bareItem() bool {
	c := p.peek()
	switch {
	case c == '-' || isDigit(c):
		return p.number()
	case c == '"':
		return p.quoted()
	case c == '?':
		p.next('?')
		return p.next('0') || p.next('1')
	case c == ':':
		p.next(':')
		p.take(func(c byte) bool { return isAlpha(c) || isDigit(c) || c == '+' || c == '/' || c == '=' })
		return p.next(':')
	case c == '@':
		p.next('@')
		p.next('-')
		n := len(p.take(isDigit))
		return n >= 1 && n <= 15 && p.peek() != '.'
	case c == '%':
		p.next('%')
		return p.display()
	case isAlpha(c) || c == '*':
		p.take(func(c byte) bool {
			return isAlpha(c) || isDigit(c) || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~:/"), c) >= 0
		})
		return true
	}
	return false
}

// number implements RFC 9651 §4.2.4: an Integer of up to 15 digits, or a Decimal of up to 12 and 3.
func (p *fieldParser) number() bool {
	p.next('-')
	whole := len(p.take(isDigit))
	if !p.next('.') {
		return whole >= 1 && whole <= 15
	}
	fraction := len(p.take(isDigit))
	return whole >= 1 && whole <= 12 && fraction >= 1 && fraction <= 3
}

// display implements RFC 9651 §4.2.10 after the percent sign: UTF-8 with escaped non-ASCII octets.
func (p *fieldParser) display() bool {
	if !p.next('"') {
		return false
	}
	var sequence [utf8.UTFMax]byte // octets of an incomplete character
	n := 0
	for len(p.rest) > 0 {
		c := p.rest[0]
		p.rest = p.rest[1:]
		switch {
		case c == '"':
			return n == 0
		case c < ' ' || c >= 0x7F:
			return false
		case c == '%':
			if len(p.rest) < 2 || !isLowerHex(p.rest[0]) || !isLowerHex(p.rest[1]) {
				return false
			}
			c = unhex(p.rest[0])<<4 | unhex(p.rest[1])
			p.rest = p.rest[2:]
		}
		if n == 0 && c < utf8.RuneSelf {
			continue
		}
		sequence[n] = c
		n++
		if utf8.FullRune(sequence[:n]) {
			if r, size := utf8.DecodeRune(sequence[:n]); r == utf8.RuneError && size == 1 || size != n {
				return false
			}
			n = 0
		}
	}
	return false
}

func isLowerHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }

func unhex(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c - 'a' + 10
}

// quoted implements RFC 9651 §4.2.5.
func (p *fieldParser) quoted() bool {
	if !p.next('"') {
		return false
	}
	for len(p.rest) > 0 {
		c := p.rest[0]
		p.rest = p.rest[1:]
		switch {
		case c == '"':
			return true
		case c == '\\':
			if !p.next('"') && !p.next('\\') {
				return false
			}
		case c < ' ' || c >= 0x7F:
			return false
		}
	}
	return false
}

// UsageAsRule returns the first record of usage that Google's code reads as a rule. A draft, and so our surveys, read
// such records as preferences on the use of content.
func UsageAsRule(f *parser.File) (rec parser.Record, ok bool) {
	for i := range f.Records() {
		rec := f.Record(i)
		for k := range parser.NumKeys {
			if k.IsUsage() && rec.Key.Class() == parser.ClassCore && strings.EqualFold(string(rec.KeyText), k.String()) {
				return rec, true
			}
		}
	}
	return rec, false
}
