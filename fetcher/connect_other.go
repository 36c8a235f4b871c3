//go:build !linux

package fetcher

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// direct leaves connecting to net.Dialer where it has not been measured.
func (w *wire) direct(context.Context, netip.AddrPort, time.Time) (net.Conn, func() bool, error) {
	return nil, nil, errIndirect
}
