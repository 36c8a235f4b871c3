// Package origin answers one question: which site? An Origin is a scheme, a host and a port, normalised so that two
// spellings of one site compare equal (RFC 6454 §4; RFC 9309 §2.3).
package origin

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Scheme is the protocol by which a site is fetched. The zero value is invalid.
type Scheme uint8

// The schemes of list entries. Auto is that of an entry without a scheme: it is tried by https, then by http.
const (
	Auto Scheme = iota + 1
	HTTPS
	HTTP
	FTP
)

// String returns "auto", "https", "http" or "ftp", the values of the dataset's column `requested`.
func (s Scheme) String() string {
	switch s {
	case Auto:
		return "auto"
	case HTTPS:
		return "https"
	case HTTP:
		return "http"
	case FTP:
		return "ftp"
	}
	return "invalid"
}

// DefaultPort returns the port of an origin that names none. That of Auto is that of https.
func (s Scheme) DefaultPort() uint16 {
	switch s {
	case Auto, HTTPS:
		return 443
	case HTTP:
		return 80
	case FTP:
		return 21
	}
	return 0
}

// Origin is one site: scheme, host and port. It is comparable, and its zero value is invalid. The host is lower-case
// IDNA ASCII without a trailing dot, or an IP address in its canonical text (IPv6 without brackets).
type Origin struct {
	host   string
	port   uint16
	scheme Scheme
}

// The errors of an invalid list entry. Parse wraps them with details of the entry.
var (
	ErrEmpty    = errors.New("empty entry")
	ErrScheme   = errors.New("scheme is not http, https or ftp")
	ErrUserInfo = errors.New("user info is not allowed")
	ErrHost     = errors.New("not a host name or IP address")
	ErrPort     = errors.New("port is not a number from 1 to 65535")
)

// Parse parses a list entry: a host (`example.com`, `example.com:8080`, `[2001:db8::1]`), or a URL, whose path, query
// and fragment are dropped. An entry without a scheme has scheme Auto. Hosts are parsed as in browsers (WHATWG URL
// §3.5): escapes are decoded, names mapped to IDNA ASCII, and a host that ends in a number is an IPv4 address in any
// of its spellings. The host may alias s.
func Parse(s string) (Origin, error) {
	o, _, err := ParseSpelling(s)
	return o, err
}

// ParseSpelling is Parse that also returns how the host is spelled. It is for lists, where a number is more often a
// rank or a price than an address.
func ParseSpelling(s string) (Origin, Spelling, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return Origin{}, 0, ErrEmpty
	}
	head, rest, ok := strings.Cut(s, "://")
	scheme, known := schemeOf(head)
	switch {
	case ok && known:
	case ok && !strings.ContainsAny(head, "/?#\\"):
		return Origin{}, 0, fmt.Errorf("%w: %q", ErrScheme, clip(head))
	default:
		scheme, rest = Auto, strings.TrimPrefix(s, "//")
	}
	if i := strings.IndexAny(rest, "/?#\\"); i >= 0 {
		rest = rest[:i]
	}
	if name, ok := strings.CutSuffix(rest, ":"); ok {
		// `http:/example.com` and `http:\\example.com` lack slashes: their host is not `http`. Nor is it in
		// `https://http://example.com`.
		if _, ok := schemeOf(name); ok && scheme == Auto {
			return Origin{}, 0, fmt.Errorf("%w: no // after %q", ErrScheme, rest)
		} else if ok {
			return Origin{}, 0, fmt.Errorf("%w: a second scheme", ErrHost)
		}
	}
	if strings.IndexByte(rest, '@') >= 0 {
		return Origin{}, 0, ErrUserInfo
	}
	host, portText := rest, ""
	if strings.HasPrefix(rest, "[") {
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return Origin{}, 0, fmt.Errorf("%w: no closing bracket", ErrHost)
		}
		host, portText = rest[1:end], rest[end+1:]
		if portText != "" && portText[0] != ':' {
			return Origin{}, 0, fmt.Errorf("%w: text after the bracket", ErrHost)
		}
		addr, err := netip.ParseAddr(host)
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return Origin{}, 0, fmt.Errorf("%w: not an IPv6 address in brackets", ErrHost)
		}
		portText = strings.TrimPrefix(portText, ":")
	} else if i := strings.IndexByte(rest, ':'); i >= 0 {
		host, portText = rest[:i], rest[i+1:]
		if strings.IndexByte(portText, ':') >= 0 {
			// More than one colon without brackets: an IPv6 address, or an error.
			if addr, err := netip.ParseAddr(rest); err != nil || addr.Zone() != "" {
				return Origin{}, 0, fmt.Errorf("%w: more than one colon", ErrPort)
			}
			host, portText = rest, ""
		}
	}
	if strings.IndexByte(host, '%') >= 0 {
		// Escapes are decoded after splitting, so that they cannot add user info, a port or a path.
		host = unescape(host)
		if strings.IndexByte(host, ':') >= 0 {
			return Origin{}, 0, fmt.Errorf("%w: byte ':'", ErrHost)
		}
	}
	port := scheme.DefaultPort()
	if portText != "" {
		n, err := strconv.ParseUint(portText, 10, 16)
		if err != nil || n == 0 {
			return Origin{}, 0, fmt.Errorf("%w: %q", ErrPort, clip(portText))
		}
		port = uint16(n)
	}
	return build(scheme, host, port)
}

func schemeOf(name string) (Scheme, bool) {
	switch {
	case strings.EqualFold(name, "https"):
		return HTTPS, true
	case strings.EqualFold(name, "http"):
		return HTTP, true
	case strings.EqualFold(name, "ftp"):
		return FTP, true
	}
	return Auto, false
}

// New returns the origin of a scheme, a host in any spelling (without brackets) and a port; port 0 is the scheme's
// default.
func New(scheme Scheme, host string, port uint16) (Origin, error) {
	if scheme < Auto || scheme > FTP {
		return Origin{}, ErrScheme
	}
	o, _, err := build(scheme, host, port)
	return o, err
}

// build is New that also returns how the host was spelled.
func build(scheme Scheme, host string, port uint16) (Origin, Spelling, error) {
	h, spelling, err := normalHost(host)
	if err != nil {
		return Origin{}, 0, err
	}
	if port == 0 {
		port = scheme.DefaultPort()
	}
	return Origin{host: h, port: port, scheme: scheme}, spelling, nil
}

// lookup maps names as browsers do before they ask DNS (UTS 46, non-transitional). It allows underscores, and hyphens
// at any position, because real host names have them (`r3---sn-4g5e.googlevideo.com`).
var lookup = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(), idna.StrictDomainName(false),
	idna.CheckHyphens(false))

// maxUnicode bounds the names that are mapped, in bytes, because punycode takes quadratic time. A name of 253 ASCII
// bytes is mapped from fewer than 253 runes, unless accents are decomposed.
const maxUnicode = 2048

// normalHost returns the canonical spelling of a host, or ErrHost with the reason. ASCII names are only lowered:
// whether a label `xn--…` is valid punycode is left to DNS.
func normalHost(host string) (string, Spelling, error) {
	if strings.IndexByte(host, ':') >= 0 {
		addr, err := netip.ParseAddr(host)
		if err != nil || addr.Zone() != "" {
			return "", 0, fmt.Errorf("%w: %q", ErrHost, clip(host))
		}
		return addr.Unmap().String(), Full, nil
	}
	if isASCII(host) {
		host = strings.ToLower(host) // no allocation if it is in lower case
	} else {
		if len(host) > maxUnicode {
			return "", 0, fmt.Errorf("%w: longer than 253 bytes", ErrHost)
		}
		ascii, err := lookup.ToASCII(host)
		if err != nil || !utf8.ValidString(host) { // ToASCII reads broken UTF-8 as U+FFFD
			return "", 0, fmt.Errorf("%w: %q", ErrHost, clip(host))
		}
		host = ascii
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" {
		return "", 0, fmt.Errorf("%w: no host", ErrHost)
	}
	if len(host) > 253 {
		return "", 0, fmt.Errorf("%w: longer than 253 bytes", ErrHost)
	}
	label := 0
	for i := 0; i <= len(host); i++ {
		if i == len(host) || host[i] == '.' {
			if label == 0 {
				return "", 0, fmt.Errorf("%w: empty label", ErrHost)
			}
			if label > 63 {
				return "", 0, fmt.Errorf("%w: label longer than 63 bytes", ErrHost)
			}
			label = 0
			continue
		}
		if !hostByte(host[i]) {
			return "", 0, fmt.Errorf("%w: byte %q", ErrHost, host[i])
		}
		label++
	}
	// A name whose last label is a number is an IPv4 address, or invalid: `127.1` must not pass an address guard as a
	// name (WHATWG URL §3.5, "ends in a number").
	if endsInNumber(host) {
		addr, ok := parseIPv4(host)
		if !ok {
			return "", 0, fmt.Errorf("%w: ends in a number but is no IPv4 address", ErrHost)
		}
		full := addr.String()
		return full, spellingOf(host, full), nil
	}
	return host, Full, nil
}

// Spelling is how an entry spells its host.
type Spelling uint8

// The spellings. Odd and Number are spellings of IPv4 addresses.
const (
	// a name, an IPv6 address, or four decimal numbers; with escapes, wide digits or a last dot, too
	Full   Spelling = iota
	Odd             // fewer numbers, octal or hexadecimal ones: `127.1`, `010.1.2.3`, `0x7f000001`
	Number          // only digits, like ranks and identifiers: `2130706433`
)

// spellingOf compares a mapped host with its address in full.
func spellingOf(host, full string) Spelling {
	switch {
	case host == full:
		return Full
	case strings.ContainsAny(host, ".x"):
		return Odd
	}
	return Number
}

// parseIPv4 parses an address of one to four numbers, of which the last fills the remaining bytes: `127.1`,
// `0x7f000001` and `2130706433` are 127.0.0.1. Browsers parse these forms of inet_aton, too (WHATWG URL §3.5, "IPv4
// parser").
func parseIPv4(host string) (netip.Addr, bool) {
	var numbers [4]uint64
	n := 0
	for part := range strings.SplitSeq(host, ".") {
		number, ok := ipv4Number(part)
		if !ok || n == len(numbers) {
			return netip.Addr{}, false
		}
		numbers[n] = number
		n++
	}
	address := numbers[n-1]
	if address >= 1<<(8*(5-n)) {
		return netip.Addr{}, false
	}
	for i, number := range numbers[:n-1] {
		if number > 255 {
			return netip.Addr{}, false
		}
		address |= number << (24 - 8*i)
	}
	return netip.AddrFrom4([4]byte{byte(address >> 24), byte(address >> 16), byte(address >> 8), byte(address)}), true
}

// ipv4Number parses one number of a lowered address: hexadecimal after 0x, octal after 0, else decimal; 0x alone is 0.
func ipv4Number(s string) (uint64, bool) {
	base := 10
	if digits, ok := strings.CutPrefix(s, "0x"); ok {
		if digits == "" {
			return 0, true
		}
		s, base = digits, 16
	} else if len(s) > 1 && s[0] == '0' {
		s, base = s[1:], 8
	}
	number, err := strconv.ParseUint(s, base, 64)
	return number, err == nil
}

// unescape decodes percent-encoded bytes. A % without two hex digits stays, and makes the host invalid.
func unescape(s string) string {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if b, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(b))
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func hostByte(c byte) bool {
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'
}

// endsInNumber reports whether the last label of a lowered name is a decimal or 0x number, of any size.
func endsInNumber(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	digits, isHex := strings.CutPrefix(last, "0x")
	if last == "" || digits == "" && !isHex {
		return false
	}
	for i := 0; i < len(digits); i++ {
		c := digits[i]
		if !(c >= '0' && c <= '9' || isHex && c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

// clip bounds the input that an error quotes.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// IsValid reports whether the origin came from Parse, New or With.
func (o Origin) IsValid() bool { return o.scheme != 0 }

// Host returns the host without brackets.
func (o Origin) Host() string { return o.host }

// Port returns the port, never 0 for a valid origin.
func (o Origin) Port() uint16 { return o.port }

// Scheme returns the scheme; Auto for an entry without one.
func (o Origin) Scheme() Scheme { return o.scheme }

// As returns the origin with scheme s, if its scheme is Auto. A default port becomes that of s (443 becomes 80); any
// other port stays. An origin with another scheme than Auto is returned unchanged.
func (o Origin) As(s Scheme) Origin {
	if o.scheme != Auto {
		return o
	}
	if o.port == Auto.DefaultPort() {
		o.port = s.DefaultPort()
	}
	o.scheme = s
	return o
}

// Addr returns the host as an IP address, if it is one.
func (o Origin) Addr() (netip.Addr, bool) {
	if strings.IndexByte(o.host, ':') < 0 && !endsInNumber(o.host) {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(o.host)
	return addr, err == nil
}

// shared is the space of carriers' networks (RFC 6598). reserved is the former class E (RFC 1112 §4).
var (
	shared   = netip.MustParsePrefix("100.64.0.0/10")
	reserved = netip.MustParsePrefix("240.0.0.0/4")
)

// IsSpecial reports whether the host is an IPv4 address outside of the public Internet: one of this network, this
// machine, a private network or link, a group, or reserved (RFC 6890). The fetcher refuses all of them, and more.
func (o Origin) IsSpecial() bool {
	addr, ok := o.Addr()
	return ok && addr.Is4() && (addr.As4()[0] == 0 || addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast() ||
		addr.IsMulticast() || shared.Contains(addr) || reserved.Contains(addr))
}

// AppendTo appends the origin as `https://example.com`, with a port other than the scheme's default, and IPv6 in
// brackets. With scheme Auto it appends no scheme: `example.com`.
func (o Origin) AppendTo(b []byte) []byte {
	if o.scheme != Auto {
		b = append(b, o.scheme.String()...)
		b = append(b, "://"...)
	}
	return o.AppendHostTo(b)
}

// AppendHostTo appends the value of a Host header: the host, and the port if it is not the default.
func (o Origin) AppendHostTo(b []byte) []byte {
	if strings.IndexByte(o.host, ':') >= 0 {
		b = append(b, '[')
		b = append(b, o.host...)
		b = append(b, ']')
	} else {
		b = append(b, o.host...)
	}
	if o.port != o.scheme.DefaultPort() {
		b = append(b, ':')
		b = strconv.AppendUint(b, uint64(o.port), 10)
	}
	return b
}

// String is AppendTo as a string.
func (o Origin) String() string { return string(o.AppendTo(nil)) }
