//go:build !linux

package simweb

import (
	"errors"
	"net"
	"net/netip"
)

// plugs is false: how to lose a client's first packet is only known on Linux. Hosts in a black hole accept the
// connection here and stay silent.
const plugs = false

func plug(net.Listener) (net.Conn, error) { return nil, errors.ErrUnsupported }

// reserve checks that no program listens at an address. It cannot prevent that later.
func reserve(at netip.AddrPort) (release func(), err error) {
	l, err := net.Listen("tcp4", at.String())
	if err != nil {
		return nil, err
	}
	return func() {}, l.Close()
}
