package audit

import (
	"bytes"
	"encoding/binary"
)

// sniffed are the prefixes by which browsers recognize HTML (WHATWG MIME Sniffing §7.1), in lower case. All except the
// comment must be followed by white space or `>`.
var sniffed = [...]string{
	"<!doctype html", "<html", "<head", "<script", "<iframe", "<h1", "<div", "<font", "<table", "<a", "<style",
	"<title", "<b", "<body", "<br", "<p", "<meta", "<link", "<!--",
}

// isHTML reports whether a body is an HTML page. Its beginning decides, whatever its Content-Type. An XML declaration
// is skipped.
func isHTML(body []byte) bool {
	body = bytes.TrimPrefix(body, []byte("\xEF\xBB\xBF"))
	if len(body) == 0 || body[0] > '<' {
		return false // almost every robots.txt begins with a letter
	}
	body = bytes.TrimLeft(body[:min(len(body), 1024)], " \t\r\n\f")
	if hasPrefixFold(body, "<?xml") {
		if end := bytes.IndexByte(body, '>'); end >= 0 {
			body = bytes.TrimLeft(body[end+1:], " \t\r\n\f")
		}
	}
	if len(body) == 0 || body[0] != '<' {
		return false
	}
	for _, start := range sniffed {
		if !hasPrefixFold(body, start) {
			continue
		}
		if start == "<!--" || len(body) > len(start) && bytes.IndexByte([]byte(" \t\r\n\f>"), body[len(start)]) >= 0 {
			return true
		}
	}
	return false
}

// isASCII reports whether no octet is above 0x7F. It checks 32 octets at a time, since most bodies are ASCII.
func isASCII(b []byte) bool {
	high := uint64(0)
	for ; len(b) >= 32; b = b[32:] {
		high |= binary.LittleEndian.Uint64(b) | binary.LittleEndian.Uint64(b[8:]) | binary.LittleEndian.Uint64(b[16:]) | binary.LittleEndian.Uint64(b[24:])
	}
	for _, c := range b {
		high |= uint64(c)
	}
	return high&0x8080808080808080 == 0
}

const managedBegin = "begin cloudflare managed content"

// hasManagedBlock reports whether a delivery network wrote a part of the file. Such a part begins with a known comment.
// Its end is not checked, since a file may have been cut.
func hasManagedBlock(body []byte) bool {
	for {
		i := bytes.IndexByte(body, '#')
		if i < 0 {
			return false
		}
		for i++; i < len(body) && (body[i] == ' ' || body[i] == '\t' || body[i] == '#'); i++ {
		}
		body = body[i:]
		if hasPrefixFold(body, managedBegin) {
			return true
		}
	}
}

// hasPrefixFold reports whether b begins with the lower-case ASCII prefix, ignoring case.
func hasPrefixFold(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && equalFold(b[:len(prefix)], prefix)
}

// equalFold reports whether b is the lower-case ASCII text, ignoring case.
func equalFold(b []byte, text string) bool {
	if len(b) != len(text) {
		return false
	}
	for i := range len(text) {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != text[i] {
			return false
		}
	}
	return true
}
