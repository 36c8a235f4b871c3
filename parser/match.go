package parser

import "bytes"

// Match reports whether the pattern of a rule matches a prefix of the path, case included: `*` stands for any octets
// or none, a final `$` for the end of the path, anything else for itself (RFC 9309 §2.2.2, §2.2.3). Octets are
// compared as given. Write patterns with AppendPattern and paths with AppendEscapedPath; the RFC dialect normalises
// paths further, see File.Decide. Match takes at most O(len(pattern) × len(path)), allocates nothing and never
// backtracks: the leftmost place for each piece between two `*` leaves most room for the rest.
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

// AppendPath appends the part of a URL that rules are matched against. It begins at the first `/`, `?` or `;` after
// the authority and ends before the fragment. A missing leading `/` is added. The URL may be a path alone. Octets are
// left as they are.
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

// indexPathStart returns the offset of the first `/`, `?` or `;` at or after start, or len(url).
func indexPathStart(url string, start int) int {
	for start < len(url) && url[start] != '/' && url[start] != '?' && url[start] != ';' {
		start++
	}
	return start
}

const upperHex = "0123456789ABCDEF"

// AppendPattern appends the pattern of a rule's value, as the dialect compares it and Match takes it. Google's code
// escapes octets above 0x7F and writes escapes in upper case. The RFC dialect also decodes escaped unreserved octets
// (RFC 9309 §2.2.2) and writes a `$` before the end as `%24` (§2.2.3).
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

// appendNormalPath appends a path as the RFC dialect compares it. It escapes the wildcards, so that `%2A` and `%24` in
// a rule match them (RFC 9309 §2.2.3).
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
