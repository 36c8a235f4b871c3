package simweb

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// Dial opens a stream as net.Dialer.DialContext does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// ShortSilence returns a Dial for a client in this process. When the web falls silent for good on one of the Dial's
// streams, reads of that stream time out after so long. So the client's own time-outs may be long enough for a busy
// machine, on which hosts answer late, without a long wait for hosts that never answer.
func (w *Web) ShortSilence(after time.Duration, dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		d := &dialled{c, w, streamOf(c.LocalAddr(), c.RemoteAddr()), after}
		w.dialled.Store(d.stream, d)
		return d, nil
	}
}

// dialled is the client's end of a stream to a web.
type dialled struct {
	net.Conn
	web    *Web
	stream stream
	after  time.Duration
}

// stream identifies a connection by its two ends.
type stream struct{ client, server netip.AddrPort }

func streamOf(client, server net.Addr) stream {
	at := func(addr net.Addr) netip.AddrPort {
		if tcp, ok := addr.(*net.TCPAddr); ok {
			at := tcp.AddrPort()
			return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		}
		return netip.AddrPort{}
	}
	return stream{at(client), at(server)}
}

// SetLinger passes a *net.TCPConn's method on.
func (d *dialled) SetLinger(seconds int) error {
	if c, ok := d.Conn.(interface{ SetLinger(seconds int) error }); ok {
		return c.SetLinger(seconds)
	}
	return nil
}

// Close implements net.Conn.
func (d *dialled) Close() error {
	d.web.dialled.Delete(d.stream)
	return d.Conn.Close()
}

// silent notes that an accepted connection from now on has only silence, or a drip that never ends.
func (w *Web) silent(c net.Conn) {
	if d, ok := w.dialled.Load(streamOf(c.RemoteAddr(), c.LocalAddr())); ok {
		d := d.(*dialled)
		time.AfterFunc(d.after, func() { _ = d.SetReadDeadline(time.Unix(1, 0)) }) // an error means that it is closed
	}
}

// ShortNames looks names up. If the web's name server never answers about a name, it waits only for After.
type ShortNames[Answer any] struct {
	Resolver interface {
		Lookup(ctx context.Context, host string) Answer
		LookupIPv6(ctx context.Context, host string) Answer
	}
	Web   *Web
	After time.Duration
}

// Lookup looks up the addresses of a host.
func (s ShortNames[Answer]) Lookup(ctx context.Context, host string) Answer {
	if s.Web.world.behaviour(host).name == nameSilent {
		short, cancel := context.WithTimeout(ctx, s.After)
		defer cancel()
		ctx = short
	}
	return s.Resolver.Lookup(ctx, host)
}

// LookupIPv6 looks up the IPv6 addresses of a host that has others.
func (s ShortNames[Answer]) LookupIPv6(ctx context.Context, host string) Answer {
	return s.Resolver.LookupIPv6(ctx, host)
}
