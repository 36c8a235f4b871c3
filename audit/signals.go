package audit

import (
	"bytes"
	"iter"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"github.com/bulkscan/bulkscan/parser"
)

// This file reads the values of extension records: Crawl-delay, Request-rate, Visit-time, URLs, Content-Signal,
// Content-Usage. None of them changes what may be crawled.

// view is b as a string, without a copy. b must not change while the string is used.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Bounds of a Crawl-delay: its digits before the point, some thirty years, and its length in bytes.
const (
	maxDelayWhole = 9
	maxDelayText  = 40
)

// parseDelay reads a Crawl-delay in seconds: digits, among them a point at most.
func parseDelay(value []byte) (seconds float64, ok bool) {
	// ParseFloat knows more than such numbers (`inf`, `0x1p4`), and allocates where it fails: it is asked only for what
	// it can read.
	if len(value) > maxDelayText || !isDecimal(value) {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(view(value), 64)
	return seconds, err == nil
}

// isDecimal reports whether b is a number without sign and exponent, of at most maxDelayWhole digits before its point.
func isDecimal(b []byte) bool {
	whole, fraction, _ := bytes.Cut(b, []byte("."))
	return len(whole)+len(fraction) > 0 && len(whole) <= maxDelayWhole && allDigits(whole) && allDigits(fraction)
}

func allDigits(b []byte) bool {
	for _, c := range b {
		if !isDigit(c) {
			return false
		}
	}
	return true
}

// parseRate reads a Request-rate, in requests a second: so many documents in so many seconds, minutes (`m`) or hours (`h`),
// with or without the hours to which that is limited (`1/5`, `10/1m`, `50/1m 2300-0159`), which are not looked at further.
func parseRate(value []byte) (rate float64, ok bool) {
	documents, per, _ := bytes.Cut(value, []byte("/"))
	count, ok := parseCount(bytes.TrimSpace(documents))
	if !ok {
		return 0, false
	}
	per = bytes.TrimLeft(per, " \t")
	digits := 0
	for digits < len(per) && isDigit(per[digits]) {
		digits++
	}
	seconds, ok := parseCount(per[:digits])
	if !ok {
		return 0, false
	}
	if per = per[digits:]; len(per) > 0 {
		switch per[0] | 0x20 {
		case 's':
			per = per[1:]
		case 'm':
			seconds, per = seconds*60, per[1:]
		case 'h':
			seconds, per = seconds*3600, per[1:]
		}
	}
	if hours := bytes.TrimLeft(per, " \t"); len(hours) > 0 {
		if _, ok := parseHours(hours); !ok || len(hours) == len(per) {
			return 0, false
		}
	}
	return float64(count) / float64(seconds), true
}

// parseCount reads a whole number above 0, of nine digits at most.
func parseCount(b []byte) (n int, ok bool) {
	if len(b) > 9 || !allDigits(b) {
		return 0, false
	}
	for _, c := range b {
		n = 10*n + int(c-'0')
	}
	return n, n > 0
}

// Hours are the time of day in which crawlers are asked to come, in minutes after midnight UTC: From is below 1440, To may be
// 1440. Where To is before From, midnight lies between.
type Hours struct{ From, To int16 }

// parseHours reads a Visit-time, as `0600-0845`.
func parseHours(value []byte) (h Hours, ok bool) {
	from, to, _ := bytes.Cut(value, []byte("-"))
	if h.From, ok = parseMinute(bytes.TrimSpace(from)); !ok {
		return Hours{}, false
	}
	if h.To, ok = parseMinute(bytes.TrimSpace(to)); !ok {
		return Hours{}, false
	}
	h.From %= 24 * 60
	return h, true
}

// parseMinute reads a time of day of four digits, `2400` included.
func parseMinute(b []byte) (minute int16, ok bool) {
	if len(b) != 4 || !allDigits(b) {
		return 0, false
	}
	hour, minute := int16(b[0]-'0')*10+int16(b[1]-'0'), int16(b[2]-'0')*10+int16(b[3]-'0')
	return hour*60 + minute, minute < 60 && (hour < 24 || hour == 24 && minute == 0)
}

// isAbsoluteURL reports whether the value is an absolute URL of a scheme that files are fetched by, with a host and
// nothing that no URL contains. It is never resolved against anything.
func isAbsoluteURL(value []byte) bool {
	for _, scheme := range [...]string{"https://", "http://", "ftp://"} {
		if hasPrefixFold(value, scheme) {
			return hasHost(value[len(scheme):])
		}
	}
	return false
}

// hasHost reports whether what stands behind `://` begins with a host and has nothing that no URL contains.
func hasHost(rest []byte) bool {
	host, end := 0, len(rest) // of the authority without user info
	for i, c := range rest {
		if c == '/' || c == '?' || c == '#' || c == '\\' {
			end = i
			break
		}
		if c == '@' {
			host = i + 1
		}
	}
	never := uint8(0)
	for _, c := range rest {
		never |= neverInURL[c]
	}
	return never == 0 && host < end && rest[host] != ':'
}

// neverInURL holds a 1 for each octet that no URL contains.
var neverInURL = func() (is [256]uint8) {
	for c := range ' ' + 1 {
		is[c] = 1
	}
	for _, c := range []byte("\x7F<>\"") {
		is[c] = 1
	}
	return is
}()

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

// signalKeys are the keys that contentsignals.org defines, in the order in which AppendSignal writes them.
var signalKeys = [...]string{"search", "ai-input", "ai-train", "use"}

// AppendSignal appends what a Content-Signal value says in one form for all that say the same, such as
// `search=yes, ai-train=no`: in lower case, the known keys in a fixed order, of each the last valid value; behind them
// all pairs with other keys, as they come. It appends nothing if the value says nothing, and at most twice its length.
func AppendSignal(dst, value []byte) []byte {
	var said [len(signalKeys)][]byte
	others := false
	for key, val := range SignalPairs(value) {
		if i := signalKey(key); i >= 0 {
			said[i] = val
		} else {
			others = true
		}
	}
	from := len(dst)
	add := func(key string, val []byte) {
		if len(dst) > from {
			dst = append(dst, ", "...)
		}
		dst = append(dst, key...)
		dst = append(dst, '=')
		dst = append(dst, val...)
	}
	for i, val := range said {
		if val != nil {
			add(signalKeys[i], val)
		}
	}
	if others {
		for key, val := range SignalPairs(value) {
			if signalKey(key) < 0 {
				add(view(key), val)
			}
		}
	}
	for i, c := range dst[from:] {
		if 'A' <= c && c <= 'Z' {
			dst[from+i] = c + ('a' - 'A')
		}
	}
	return dst
}

// signalKey returns the index of a known key, -1 for any other.
func signalKey(key []byte) int {
	for i, known := range signalKeys {
		if equalFold(key, known) {
			return i
		}
	}
	return -1
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

// Preferences are what is said of all uses. The zero value: nothing.
type Preferences struct{ TrainAI, Search Preference }

// String returns the preferences as a Dictionary in a fixed order, such as `train-ai=n, search=y`; "" where nothing is
// stated. It does not allocate.
func (p Preferences) String() string {
	return [3][3]string{
		{"", "search=y", "search=n"},
		{"train-ai=y", "train-ai=y, search=y", "train-ai=y, search=n"},
		{"train-ai=n", "train-ai=n, search=y", "train-ai=n, search=n"},
	}[p.TrainAI%3][p.Search%3]
}

// Usage is a Content-Usage value (IETF AIPREF): preferences for the paths that match Path, a pattern as those of rules.
type Usage struct {
	Path []byte // "" for all
	Preferences
}

// rootUsage is what Content-Usage records say about `/`.
type rootUsage struct {
	weight int32 // octets of the pattern that says so, and one; 0 where none does
	Preferences
}

// atRoot returns what the value says about `/`, and whether it says anything of it. What matches that is made of `/`, `*` and
// `$`, so that there is nothing to normalise. A value without a path weighs less than any with one.
func (u *Usage) atRoot() (at rootUsage, ok bool) {
	if len(u.Path) > 0 && !parser.Match(u.Path, []byte("/")) {
		return rootUsage{}, false
	}
	return rootUsage{weight: int32(len(u.Path)) + 1, Preferences: u.Preferences}, true
}

// join takes what another record says: the longer pattern wins, and of equal ones whoever refuses.
func (u *rootUsage) join(o rootUsage) {
	switch {
	case o.weight > u.weight:
		*u = o
	case o.weight == u.weight:
		u.TrainAI, u.Search = max(u.TrainAI, o.TrainAI), max(u.Search, o.Search)
	}
}

// ParseUsage reads a Content-Usage value: a path and white space, both optional, and a Dictionary (RFC 9651 §3.2). It reports
// whether it is one that is not empty; keys other than `train-ai` and `search`, and values other than `y` and `n`, are left
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
	if !p.dictionary(&u) || len(bytes.Trim(value, " ")) == 0 {
		return Usage{}, false
	}
	return u, true
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
		return p.display()
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

// display is RFC 9651 §4.2.10 behind the percent sign: UTF-8 whose octets outside of ASCII are escaped.
func (p *fieldParser) display() bool {
	if !p.next('"') {
		return false
	}
	var sequence [utf8.UTFMax]byte // an unfinished one
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

// quoted is RFC 9651 §4.2.5.
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
