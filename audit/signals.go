package audit

import (
	"bytes"
	"unsafe"
)

// This file reads the values of extension records: Request-rate, Visit-time, URLs. contentsignal.go reads
// Content-Signal, usage.go Content-Usage. None of them changes which paths a crawler may fetch.

// view returns b as a string without a copy. b must not change while the string is used.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func allDigits(b []byte) bool {
	for _, c := range b {
		if !isDigit(c) {
			return false
		}
	}
	return true
}

// parseRate reads a Request-rate and returns requests per second. The value has a number of documents, then a number of
// seconds, minutes (`m`) or hours (`h`), and optionally the hours of day to which it is limited (`1/5`, `10/1m`, `50/1m
// 2300-0159`). These hours are checked and otherwise ignored.
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

// parseCount reads a whole number above 0, of at most nine digits.
func parseCount(b []byte) (n int, ok bool) {
	if len(b) > 9 || !allDigits(b) {
		return 0, false
	}
	for _, c := range b {
		n = 10*n + int(c-'0')
	}
	return n, n > 0
}

// Hours is the time of day for which crawlers are invited, in minutes after midnight UTC. From is below 1440; To may be
// 1440. If To is before From, the range includes midnight.
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

// parseMinute reads a time of day of four digits, including `2400`.
func parseMinute(b []byte) (minute int16, ok bool) {
	if len(b) != 4 || !allDigits(b) {
		return 0, false
	}
	hour, minute := int16(b[0]-'0')*10+int16(b[1]-'0'), int16(b[2]-'0')*10+int16(b[3]-'0')
	return hour*60 + minute, minute < 60 && (hour < 24 || hour == 24 && minute == 0)
}

// isAbsoluteURL reports whether the value is an absolute URL with a scheme for fetching files, a host, and only octets
// that a URL may contain. It is never resolved against a base.
func isAbsoluteURL(value []byte) bool {
	for _, scheme := range [...]string{"https://", "http://", "ftp://"} {
		if hasPrefixFold(value, scheme) {
			return hasHost(value[len(scheme):])
		}
	}
	return false
}

// hasHost reports whether the text after `://` begins with a host and has only octets that a URL may contain.
func hasHost(rest []byte) bool {
	host, end := 0, len(rest) // bounds of the authority without user info
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

// neverInURL has a 1 for each octet that no URL contains.
var neverInURL = func() (is [256]uint8) {
	for c := range ' ' + 1 {
		is[c] = 1
	}
	for _, c := range []byte("\x7F<>\"") {
		is[c] = 1
	}
	return is
}()
