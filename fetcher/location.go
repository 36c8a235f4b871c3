package fetcher

import (
	"strings"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// maxLocation is the longest Location that is followed, in bytes.
const maxLocation = 8 << 10

// follow resolves a redirect's Location against the target that sent it (RFC 9110 §10.2.2, RFC 3986 §5.2). Like
// browsers it escapes stray bytes and normalises spellings of hosts (origin.Parse). Control bytes make a Location
// invalid, because they could smuggle requests. User info makes it invalid, too: a survey must not send credentials
// to others. The cause is 0 for a usable target.
func follow(base exchange.Target, location string) (exchange.Target, exchange.Cause) {
	const invalid = exchange.CauseLocationInvalid
	var none exchange.Target
	location = strings.Trim(location, " \t")
	if location == "" {
		return none, exchange.CauseNoLocation
	}
	if len(location) > maxLocation {
		return none, invalid
	}
	for i := 0; i < len(location); i++ {
		if location[i] < 0x20 || location[i] == 0x7f {
			return none, invalid
		}
	}
	if i := strings.IndexByte(location, '#'); i >= 0 {
		location = location[:i]
	}

	scheme, rest, absolute := cutScheme(location)
	if absolute && scheme != "http" && scheme != "https" {
		return none, exchange.CauseLocationScheme
	}
	path, query := rest, ""
	if i := strings.IndexByte(rest, '?'); i >= 0 {
		path, query = rest[:i], rest[i:]
	}
	// Browsers read a backslash in http URLs as a slash (WHATWG URL §4.4).
	path = strings.ReplaceAll(path, `\`, "/")

	next := base
	switch {
	case strings.HasPrefix(path, "//"):
		if !absolute {
			scheme = base.Origin.Scheme().String()
		}
		authority := path[2:]
		path = ""
		if i := strings.IndexByte(authority, '/'); i >= 0 {
			authority, path = authority[:i], authority[i:]
		}
		// origin.Parse would decode and map a name of any length. A DNS name has 253 bytes, a few times that in
		// UTF-8, and three times as many if each byte is escaped.
		if authority == "" || len(authority) > 3<<10 {
			return none, invalid
		}
		o, err := origin.Parse(scheme + "://" + authority)
		if err != nil {
			return none, invalid
		}
		next.Origin = o
	case absolute:
		// Clients differ in their reading of `https:path`.
		return none, invalid
	case strings.HasPrefix(path, "/"):
	case path == "":
		path = pathOf(base)
		if i := strings.IndexByte(path, '?'); i >= 0 {
			if query == "" {
				query = path[i:]
			}
			path = path[:i]
		}
	default:
		dir := pathOf(base)
		if i := strings.IndexByte(dir, '?'); i >= 0 {
			dir = dir[:i]
		}
		path = dir[:strings.LastIndexByte(dir, '/')+1] + path
	}
	next.Path = escape(removeDots(path) + query)
	if next.Path == exchange.RobotsPath {
		next.Path = ""
	}
	return next, 0
}

// pathOf returns a target's path and query; never "".
func pathOf(t exchange.Target) string {
	if t.Path == "" {
		return exchange.RobotsPath
	}
	return t.Path
}

// cutScheme splits a reference into its scheme (RFC 3986 §3.1), in lower case, and the rest after the colon.
func cutScheme(s string) (scheme, rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		c := s[i] | 0x20
		switch {
		case c >= 'a' && c <= 'z':
		case i > 0 && (s[i] >= '0' && s[i] <= '9' || s[i] == '+' || s[i] == '-' || s[i] == '.'):
		case i > 0 && s[i] == ':':
			return strings.ToLower(s[:i]), s[i+1:], true
		default:
			return "", s, false
		}
	}
	return "", s, false
}

// removeDots resolves `.` and `..` in an absolute path (RFC 3986 §5.2.4); an empty path is "/".
func removeDots(path string) string {
	if path == "" {
		return "/"
	}
	if !strings.Contains(path, "/.") {
		return path
	}
	out := make([]byte, 0, len(path))
	for rest := path; rest != ""; {
		end := strings.IndexByte(rest[1:], '/') + 1
		if end == 0 {
			end = len(rest)
		}
		segment := rest[:end]
		rest = rest[end:]
		switch segment {
		case "/.":
		case "/..":
			for len(out) > 0 {
				last := out[len(out)-1]
				out = out[:len(out)-1]
				if last == '/' {
					break
				}
			}
		default:
			out = append(out, segment...)
			continue
		}
		if rest == "" {
			out = append(out, '/')
		}
	}
	return string(out)
}

// escape percent-encodes the bytes that are not allowed in a request line or a URL (RFC 3986). Existing escapes, even
// broken ones, stay.
func escape(path string) string {
	const hex = "0123456789ABCDEF"
	count := 0
	for i := 0; i < len(path); i++ {
		if mustEscape(path[i]) {
			count++
		}
	}
	if count == 0 {
		return strings.Clone(path)
	}
	out := make([]byte, 0, len(path)+2*count)
	for i := 0; i < len(path); i++ {
		if c := path[i]; mustEscape(c) {
			out = append(out, '%', hex[c>>4], hex[c&15])
		} else {
			out = append(out, c)
		}
	}
	return string(out)
}

func mustEscape(c byte) bool {
	return c <= 0x20 || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0
}
