package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/bulkscan/bulkscan/bench/facts"
)

// This file is the name server. It has one socket and one goroutine that reads and answers, many packets at a time where
// the system can, and one processor: what it leaves of two is the client's.

// faults are what it does wrong.
type faults struct {
	Drop, Delay float64       // of a hundred packets: not answered; answered late
	By          time.Duration // how late
	Seed        uint64
}

// fate is what becomes of a packet.
type fate int

const (
	answered fate = iota
	dropped
	delayed
)

// fate of the n-th packet, which says nothing of any other's, that of a repeated question least of all.
func (f *faults) fate(n uint64) fate {
	if f.Drop == 0 && f.Delay == 0 {
		return answered
	}
	lot := float64(scramble(f.Seed+n*0x9e3779b97f4a7c15)>>11) / (1 << 53) * 100
	switch {
	case lot < f.Drop:
		return dropped
	case lot < f.Drop+f.Delay:
		return delayed
	}
	return answered
}

// scramble is the finish of splitmix64, in which each bit depends on each.
func scramble(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// counts is what the server has seen since it was last asked.
type counts struct {
	Packets uint64 // that came
	Dropped uint64
	Delayed uint64
	Odd     uint64        // that were no question, which nobody here sends
	CPU     time.Duration // of its process
}

// serverReply is what it tells: where it is, then, for each line on its input, what it has counted.
type serverReply struct {
	Addr   netip.AddrPort
	Counts counts
}

// serverPart is the server's process. It ends with its input.
func serverPart(in io.Reader, out io.Writer) error {
	runtime.GOMAXPROCS(1)
	commands, replies := json.NewDecoder(in), json.NewEncoder(out)
	var f faults
	if err := commands.Decode(&f); err != nil {
		return fmt.Errorf("cannot read how to serve: %w", err)
	}
	s, err := listen(f)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.serve() }()
	var before counts
	if err := replies.Encode(serverReply{Addr: s.addr()}); err != nil {
		return err
	}
	for {
		var ask string
		if err := commands.Decode(&ask); err != nil {
			s.close()
			return errors.Join(<-served, eof(err))
		}
		now := s.counts()
		if err := replies.Encode(serverReply{Counts: now.since(before)}); err != nil {
			return err
		}
		before = now
	}
}

// eof passes over the end of an input, which is how a process here is told to end.
func eof(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (c counts) since(before counts) counts {
	return counts{
		Packets: c.Packets - before.Packets, Dropped: c.Dropped - before.Dropped, Delayed: c.Delayed - before.Delayed,
		Odd: c.Odd - before.Odd, CPU: c.CPU - before.CPU,
	}
}

// server answers what comes to one socket.
type server struct {
	conn   *net.UDPConn
	faults faults
	late   chan lateReply
	closed chan struct{}

	packets, dropped, delayed, odd atomic.Uint64
}

// lateReply waits for its time. All wait for equally long, so they come out in the order in which they went in.
type lateReply struct {
	due    time.Time
	to     net.Addr
	packet []byte
}

const (
	batch      = 64      // packets read and written at a time
	maxPacket  = 1500    // bytes of a packet that are read
	socketRoom = 4 << 20 // bytes that the system keeps of what came and is not read; as much as it allows
	maxLate    = 1 << 16 // replies that wait; what is more is dropped
)

// listen opens the socket, on a port of loopback that is free.
func listen(f faults) (*server, error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	if err := errors.Join(conn.SetReadBuffer(socketRoom), conn.SetWriteBuffer(socketRoom)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	return &server{conn: conn, faults: f, late: make(chan lateReply, maxLate), closed: make(chan struct{})}, nil
}

func (s *server) addr() netip.AddrPort { return s.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

func (s *server) counts() counts {
	return counts{s.packets.Load(), s.dropped.Load(), s.delayed.Load(), s.odd.Load(), facts.CPU()}
}

// close ends serve.
func (s *server) close() {
	close(s.closed)
	_ = s.conn.Close()
}

// serve answers until the socket is closed.
func (s *server) serve() error {
	conn := ipv4.NewPacketConn(s.conn)
	var late sync.WaitGroup
	late.Go(s.serveLate)
	defer late.Wait()
	defer close(s.late)

	in, out := make([]ipv4.Message, batch), make([]ipv4.Message, batch)
	for i := range in {
		in[i].Buffers = [][]byte{make([]byte, maxPacket)}
		out[i].Buffers = [][]byte{make([]byte, 0, maxReply)}
	}
	for n := uint64(0); ; {
		came, err := conn.ReadBatch(in, 0)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read questions: %w", err)
		}
		ready := 0
		for i := range in[:came] {
			n++
			question := in[i].Buffers[0][:in[i].N]
			what := s.faults.fate(n)
			if what == dropped {
				s.dropped.Add(1)
				continue
			}
			packet := reply(out[ready].Buffers[0][:0], question)
			if len(packet) == 0 {
				s.odd.Add(1)
				continue
			}
			if what == delayed {
				select {
				case s.late <- lateReply{time.Now().Add(s.faults.By), in[i].Addr, append([]byte(nil), packet...)}:
					s.delayed.Add(1)
				default:
					s.dropped.Add(1)
				}
				continue
			}
			out[ready].Buffers[0], out[ready].Addr = packet, in[i].Addr
			ready++
		}
		s.packets.Add(uint64(came))
		for sent := 0; sent < ready; {
			k, err := conn.WriteBatch(out[sent:ready], 0)
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			if err != nil {
				k = 1 // the first one cannot be sent: to a port that is closed by now, say
			}
			sent += k
		}
	}
}

// serveLate sends what waits, each when its time has come.
func (s *server) serveLate() {
	for l := range s.late {
		select {
		case <-time.After(time.Until(l.due)):
			_, _ = s.conn.WriteTo(l.packet, l.to) // to a port that may be closed by now
		case <-s.closed:
			return
		}
	}
}
