package parser

import "bytes"

// Match reports whether the pattern of a rule matches the path, from its start and with regard to case: `*` stands for
// zero or more octets, `$` at the very end for the end of the path, anything else for itself (RFC 9309 §2.2.2, §2.2.3).
// Both are compared octet by octet: the pattern is what AppendPattern makes of a rule's value, the path what
// AppendEscapedPath makes of a URL (in the RFC dialect it is normalised further, see File.Decide). It works in O(len(pattern) × len(path)) at most, allocates
// nothing, and never backtracks: among the places where a piece between two `*` fits, the leftmost leaves most room
// for the rest.
func Match(pattern, path []byte) bool {
	star := bytes.IndexByte(pattern, '*')
	if star < 0 {
		if n := len(pattern); n > 0 && pattern[n-1] == '$' {
			return string(pattern[:n-1]) == string(path)
		}
		return bytes.HasPrefix(path, pattern)
	}
	if !bytes.HasPrefix(path, pattern[:star]) {
		return false
	}
	pattern, path = pattern[star+1:], path[star:]
	for {
		for len(pattern) > 0 && pattern[0] == '*' {
			pattern = pattern[1:]
		}
		star = bytes.IndexByte(pattern, '*')
		if star < 0 {
			break
		}
		i := bytes.Index(path, pattern[:star])
		if i < 0 {
			return false
		}
		pattern, path = pattern[star+1:], path[i+star:]
	}
	if n := len(pattern); n > 0 && pattern[n-1] == '$' {
		return bytes.HasSuffix(path, pattern[:n-1])
	}
	return bytes.Contains(path, pattern)
}

// AppendPath appends the part of a URL that rules are matched against: from the first `/`, `?` or `;` behind the
// authority to the fragment, which is dropped; a `/` is put before it where it is missing. A path alone is a URL too.
// Octets are left as they are.
func AppendPath(dst []byte, url string) []byte {
	skip := 0
	if len(url) >= 2 && url[:2] == "//" {
		skip = 2
	}
	authority := skip
	early := indexPathStart(url, skip)
	for i := skip; i < early && i+3 <= len(url); i++ {
		if url[i:i+3] == "://" {
			authority = i + 3
			break
		}
	}
	start := indexPathStart(url, authority)
	end := len(url)
	for i := skip; i < len(url); i++ {
		if url[i] == '#' {
			end = i
			break
		}
	}
	if start >= end {
		return append(dst, '/')
	}
	if url[start] != '/' {
		dst = append(dst, '/')
	}
	return append(dst, url[start:end]...)
}

// AppendEscapedPath is AppendPath with octets above 0x7F written as %XX, as user agents send them.
func AppendEscapedPath(dst []byte, url string) []byte {
	from := len(dst)
	dst = AppendPath(dst, url)
	return escapeOctets(dst, from)
}

// escapeOctets replaces the octets above 0x7F in buf[from:] by %XX, in place from the back.
func escapeOctets(buf []byte, from int) []byte {
	high := 0
	for _, c := range buf[from:] {
		if c >= 0x80 {
			high++
		}
	}
	if high == 0 {
		return buf
	}
	read := len(buf) - 1
	for range high {
		buf = append(buf, 0, 0)
	}
	for write := len(buf) - 1; read >= from; read-- {
		c := buf[read]
		if c < 0x80 {
			buf[write] = c
			write--
			continue
		}
		buf[write-2], buf[write-1], buf[write] = '%', upperHex[c>>4], upperHex[c&15]
		write -= 3
	}
	return buf
}

// indexPathStart returns the first offset from start on of `/`, `?` or `;`, or len(url).
func indexPathStart(url string, start int) int {
	for start < len(url) && url[start] != '/' && url[start] != '?' && url[start] != ';' {
		start++
	}
	return start
}

const upperHex = "0123456789ABCDEF"

// AppendPattern appends a rule's value as it is compared in the dialect, the pattern that Match takes. Google's code writes octets above 0x7F as %XX and the digits
// of %xx in upper case. RFC 9309 §2.2.2 moreover has escaped unreserved octets decoded, and by §2.2.3 a `$` that is no
// end of path is the same as `%24`.
func AppendPattern(dst, value []byte, d Dialect) []byte {
	for i := 0; i < len(value); i++ {
		if value[i] == '$' && d == RFC && i+1 < len(value) {
			dst = append(dst, "%24"...)
			continue
		}
		dst, i = appendOctet(dst, value, i, d)
	}
	return dst
}

// appendNormalPath appends a path as the rfc dialect compares it. The octets that are special in patterns are escaped,
// so that `%2A` and `%24` in a rule match them (RFC 9309 §2.2.3).
func appendNormalPath(dst, path []byte) []byte {
	for i := 0; i < len(path); i++ {
		switch path[i] {
		case '*':
			dst = append(dst, "%2A"...)
		case '$':
			dst = append(dst, "%24"...)
		default:
			dst, i = appendOctet(dst, path, i, RFC)
		}
	}
	return dst
}

// appendOctet appends the octet, or the escaped octet, at s[i] in its normal form and returns where it ends.
func appendOctet(dst, s []byte, i int, d Dialect) ([]byte, int) {
	c := s[i]
	switch {
	case c >= 0x80:
		return append(dst, '%', upperHex[c>>4], upperHex[c&15]), i
	case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
		octet := unhex(s[i+1])<<4 | unhex(s[i+2])
		if d == RFC && isUnreserved(octet) {
			return append(dst, octet), i + 2
		}
		return append(dst, '%', upperHex[octet>>4], upperHex[octet&15]), i + 2
	}
	return append(dst, c), i
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// isUnreserved reports whether c is unreserved (RFC 3986 §2.3).
func isUnreserved(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '-' || c == '.' || c == '_' || c == '~'
}
