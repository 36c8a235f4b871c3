package audit

import (
	"bytes"
	"iter"
	"strconv"
	"unsafe"
)

// This file reads the values of extension records: Crawl-delay, URLs, Content-Signal, Content-Usage. None of them
// changes what may be crawled.

// view is b as a string, without a copy. b must not change while the string is used.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// maxDelayText bounds a Crawl-delay, in bytes: with two digits of exponent at most, no number of that length is out of
// range.
const maxDelayText = 40

// parseDelay reads a Crawl-delay: a finite decimal number that is not negative, in seconds.
func parseDelay(value []byte) (seconds float64, ok bool) {
	// ParseFloat knows more than such numbers (`inf`, `0x1p4`), and allocates where it fails: it is asked only for what
	// it can read.
	if len(value) > maxDelayText || !isDecimal(value) {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(view(value), 64)
	return seconds, err == nil
}

// isDecimal reports whether b is a number without a minus: digits with at most one point among them, and an exponent
// of one or two digits.
func isDecimal(b []byte) bool {
	b = bytes.TrimPrefix(b, []byte("+"))
	mantissa, exponent, hasExponent := b, []byte(nil), false
	if i := bytes.IndexAny(b, "eE"); i >= 0 {
		mantissa, exponent, hasExponent = b[:i], b[i+1:], true
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	if len(whole)+len(fraction) == 0 || !allDigits(whole) || !allDigits(fraction) {
		return false
	}
	if len(exponent) > 0 && (exponent[0] == '+' || exponent[0] == '-') {
		exponent = exponent[1:]
	}
	return !hasExponent || (len(exponent) == 1 || len(exponent) == 2) && allDigits(exponent)
}

func allDigits(b []byte) bool {
	for _, c := range b {
		if !isDigit(c) {
			return false
		}
	}
	return true
}

// isAbsoluteURL reports whether the value is an absolute URL of a scheme that files are fetched by, with a host and
// nothing that no URL contains. It is never resolved against anything.
func isAbsoluteURL(value []byte) bool {
	for _, scheme := range [...]string{"https://", "http://", "ftp://"} {
		if !hasPrefixFold(value, scheme) {
			continue
		}
		rest := value[len(scheme):]
		for _, c := range rest {
			if c <= ' ' || c == 0x7F || c == '<' || c == '>' || c == '"' {
				return false
			}
		}
		authority := rest
		if end := bytes.IndexAny(authority, "/?#\\"); end >= 0 {
			authority = authority[:end]
		}
		host := authority[bytes.LastIndexByte(authority, '@')+1:]
		return len(host) > 0 && host[0] != ':'
	}
	return false
}

// SignalPairs yields the pairs of a Content-Signal value (contentsignals.org) in order, trimmed, as written: keys and
// values are compared without regard to case, and of equal keys the last counts. What is no pair, and a known key with
// a value that it does not have, is left out; unknown keys are not.
func SignalPairs(value []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for rest, more := value, true; more; {
			var pair []byte
			pair, rest, more = bytes.Cut(rest, []byte(","))
			key, val, ok := bytes.Cut(pair, []byte("="))
			key, val = bytes.TrimSpace(key), bytes.TrimSpace(val)
			if ok && validSignal(key, val) && !yield(key, val) {
				return
			}
		}
	}
}

func validSignal(key, value []byte) bool {
	switch {
	case !isWord(key) || !isWord(value):
		return false
	case equalFold(key, "search"), equalFold(key, "ai-input"), equalFold(key, "ai-train"):
		return equalFold(value, "yes") || equalFold(value, "no")
	case equalFold(key, "use"):
		return equalFold(value, "immediate") || equalFold(value, "reference") || equalFold(value, "full")
	}
	return true
}

// isWord reports whether b is visible ASCII without the separators `=`, `;` and `,`.
func isWord(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c >= 0x7F || c == '=' || c == ';' || c == ',' {
			return false
		}
	}
	return len(b) > 0
}

// isSignal reports whether a Content-Signal value says anything.
func isSignal(value []byte) bool {
	for range SignalPairs(value) {
		return true
	}
	return false
}

// Preference is what a Content-Usage dictionary says of a use. The zero value: nothing.
type Preference uint8

// The preferences.
const (
	Unstated Preference = iota
	UseAllowed
	UseRefused
)

// String returns "", "y" or "n".
func (p Preference) String() string { return [...]string{"", "y", "n", ""}[p&3] }

// Usage is a Content-Usage value (IETF AIPREF): preferences for the paths that begin with Path.
type Usage struct {
	Path            []byte // "" for all
	TrainAI, Search Preference
}

// ParseUsage reads a Content-Usage value: a path and white space, both optional, and a Dictionary (RFC 9651 §3.2).
// It reports whether it is one; keys other than `train-ai` and `search`, and values other than `y` and `n`, are left
// aside.
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
	if !p.dictionary(&u) {
		return Usage{}, false
	}
	return u, true
}

// usageInForce returns the value for the dataset: the file's own, else the response field's if it is well formed.
func usageInForce(own, field []byte) []byte {
	if own == nil && isUsage(field) {
		return field
	}
	return own
}

// isUsage reports whether a value is a Content-Usage that states something.
func isUsage(value []byte) bool {
	_, ok := ParseUsage(value)
	return ok && len(value) > 0
}

// fieldParser reads Structured Field Values (RFC 9651 §4.2) for their shape; only the two preferences are kept. Its
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

// take consumes and returns the octets for which the condition holds.
func (p *fieldParser) take(ok func(byte) bool) []byte {
	n := 0
	for n < len(p.rest) && ok(p.rest[n]) {
		n++
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

// dictionary is RFC 9651 §4.2.2.
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

// key is RFC 9651 §4.2.3.3.
func (p *fieldParser) key() ([]byte, bool) {
	if c := p.peek(); !isLower(c) && c != '*' {
		return nil, false
	}
	return p.take(func(c byte) bool {
		return isLower(c) || isDigit(c) || c == '_' || c == '-' || c == '.' || c == '*'
	}), true
}

// innerList is RFC 9651 §4.2.1.2 without the parameters behind it.
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

// parameters is RFC 9651 §4.2.3.2.
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

// bareItem is RFC 9651 §4.2.3.1.
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
		return p.quoted()
	case isAlpha(c) || c == '*':
		p.take(func(c byte) bool {
			return isAlpha(c) || isDigit(c) || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~:/"), c) >= 0
		})
		return true
	}
	return false
}

// number is RFC 9651 §4.2.4: an Integer of up to 15 digits, or a Decimal of up to 12 and 3.
func (p *fieldParser) number() bool {
	p.next('-')
	whole := len(p.take(isDigit))
	if !p.next('.') {
		return whole >= 1 && whole <= 15
	}
	fraction := len(p.take(isDigit))
	return whole >= 1 && whole <= 12 && fraction >= 1 && fraction <= 3
}

// quoted is RFC 9651 §4.2.5, and of a Display String (§4.2.10) what stands in the quotes.
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
