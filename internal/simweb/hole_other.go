//go:build !linux

package simweb

import (
	"errors"
	"net"
	"net/netip"
)

// blackHoles is 0 where it is not known how to lose a client's first packet: hosts in a black hole take the connection
// there and keep silent.
const blackHoles = 0

func plug(*net.TCPListener) (net.Conn, error) { return nil, errors.ErrUnsupported }

// reserve sees that nobody listens at an address. Here nobody is kept from doing so later.
func reserve(at netip.AddrPort) (release func(), err error) {
	l, err := net.Listen("tcp4", at.String())
	if err != nil {
		return nil, err
	}
	return func() {}, l.Close()
}
