package fetcher

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/origin"
)

// ConnectTo redirects the connections of matching targets, like curl's --connect-to. The request, its Host field and
// the TLS server name stay those of the target.
type ConnectTo struct {
	Host   string     // normalised as origin.Origin.Host; "" matches every host
	Port   uint16     // 0 matches every port
	Addr   netip.Addr // to dial; invalid keeps the resolved address
	ToPort uint16     // to dial; 0 keeps the target's port
}

var errConnectTo = errors.New("not [HOST]:[PORT]:[ADDR]:[PORT]")

// ParseConnectTo reads curl's notation [HOST]:[PORT]:[ADDR]:[PORT]. Every part may be empty. An IPv6 address stands
// in brackets. ADDR is an IP address, because a name would have to pass DNS and the opt-out list a second time.
func ParseConnectTo(s string) (ConnectTo, error) {
	fail := func(err error) (ConnectTo, error) {
		return ConnectTo{}, fmt.Errorf("cannot read connect-to %q: %w", s, err)
	}
	var parts [4]string
	rest := s
	for i := range parts {
		end := strings.IndexByte(rest, ':')
		if strings.HasPrefix(rest, "[") {
			bracket := strings.IndexByte(rest, ']')
			if bracket < 0 {
				return fail(errConnectTo)
			}
			end = bracket + 1
			if end == len(rest) {
				end = -1
			}
		}
		if i == len(parts)-1 {
			parts[i] = rest
			break
		}
		if end < 0 || rest[end] != ':' {
			return fail(errConnectTo)
		}
		parts[i], rest = rest[:end], rest[end+1:]
	}
	var c ConnectTo
	var err error
	if host := unbracket(parts[0]); host != "" {
		o, err := origin.New(origin.HTTPS, host, 0)
		if err != nil {
			return fail(err)
		}
		c.Host = o.Host()
	}
	if c.Port, err = parsePort(parts[1]); err != nil {
		return fail(err)
	}
	if text := unbracket(parts[2]); text != "" {
		if c.Addr, err = netip.ParseAddr(text); err != nil || c.Addr.Zone() != "" {
			return fail(errors.New("ADDR is not an IP address"))
		}
		c.Addr = c.Addr.Unmap()
	}
	if c.ToPort, err = parsePort(parts[3]); err != nil {
		return fail(err)
	}
	return c, nil
}

func unbracket(s string) string {
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		return s[1 : len(s)-1]
	}
	return s
}

// parsePort reads a port from 1 to 65535; "" is 0.
func parsePort(s string) (uint16, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, origin.ErrPort
	}
	return uint16(n), nil
}

// matches reports whether the rule applies to a target's origin.
func (c ConnectTo) matches(o origin.Origin) bool {
	return (c.Host == "" || c.Host == o.Host()) && (c.Port == 0 || c.Port == o.Port())
}

// ParseSourceIP parses Config.SourceIP and checks that this machine has the address. Otherwise every exchange would
// fail, and each failure would be recorded as the host's.
func ParseSourceIP(text string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return ip, err
	}
	if ip.Zone() != "" {
		return ip, errors.New("an address with a zone reaches no site")
	}
	ip = ip.Unmap()
	probe, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0)))
	if err != nil {
		return ip, fmt.Errorf("cannot dial from it: %w", err)
	}
	return ip, probe.Close()
}
