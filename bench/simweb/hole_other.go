//go:build !linux

package simweb

import (
	"errors"
	"net"
)

// blackHoles is 0 where it is not known how to lose a client's first packet: hosts in a black hole take the connection
// there and keep silent.
const blackHoles = 0

func plug(*net.TCPListener) (net.Conn, error) { return nil, errors.ErrUnsupported }
