package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file is the floor: what exchanges cost that are nothing but system calls, made by one thread that waits for all
// connections at once. It asks what ours asks and looks at what came, but there are no names, no goroutines, no deadlines
// and no limits: a longer answer than expected is an error.

// flight is one connection.
type flight struct {
	fd       int
	asked    bool
	length   int // of what was read
	response [4096]byte
}

func newEpoll(_ context.Context, w *Web, _ int) (Run, error) {
	to := make([]unix.Sockaddr, len(w.Addrs))
	for i, addr := range w.Addrs {
		to[i] = &unix.SockaddrInet4{Addr: addr.As4(), Port: int(w.Plain)}
	}
	request := fmt.Appendf(nil, "GET /robots.txt HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: text/plain,*/*;q=0.8\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n", domain, agent)
	return func(first, last, inFlight int, t *tally) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(poll) }()
		l := loop{poll: poll, to: to, request: request, n: last - first, tally: t, flights: make([]flight, min(last-first, inFlight)), wait: w.Timeout}
		return l.run()
	}, nil
}

type loop struct {
	poll    int
	to      []unix.Sockaddr
	request []byte
	n       int // exchanges to do
	begun   int
	ended   int
	tally   *tally
	flights []flight
	wait    time.Duration
}

func (l *loop) run() error {
	for i := range l.flights {
		if err := l.begin(i); err != nil {
			return err
		}
	}
	events := make([]unix.EpollEvent, len(l.flights))
	for l.ended < l.n {
		n, err := unix.EpollWait(l.poll, events, int(l.wait.Milliseconds()))
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return errors.New("nothing came any more")
		}
		for _, e := range events[:n] {
			if err := l.goOn(int(e.Fd), e.Events); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin dials for the next exchange. The event carries the flight's number in place of its file.
func (l *loop) begin(i int) error {
	f := &l.flights[i]
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f.fd, f.asked, f.length = fd, false, 0
	err = unix.Connect(fd, l.to[l.begun%len(l.to)])
	l.begun++
	if err != nil && !errors.Is(err, syscall.EINPROGRESS) {
		return err
	}
	// Edge-triggered, so that one call does for writing and reading.
	return unix.EpollCtl(l.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLET&(1<<32-1), Fd: int32(i)})
}

// goOn does what can be done for a flight.
func (l *loop) goOn(i int, events uint32) error {
	f := &l.flights[i]
	if !f.asked {
		if events&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) == 0 {
			return nil
		}
		if n, err := unix.Write(f.fd, l.request); err != nil || n < len(l.request) {
			return l.end(i, fmt.Errorf("cannot ask: %d bytes written, %w", n, err))
		}
		f.asked = true
		if events&unix.EPOLLIN == 0 {
			return nil
		}
	}
	for {
		n, err := unix.Read(f.fd, f.response[f.length:])
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return nil
		case err != nil:
			return l.end(i, err)
		}
		f.length += n
		if whole, err := f.look(); whole || err != nil {
			return l.end(i, err)
		}
		switch {
		case n == 0:
			return l.end(i, errors.New("closed before the end"))
		case f.length == len(f.response):
			return l.end(i, errors.New("too long an answer"))
		}
	}
}

// end closes a flight, tallies it and begins the next.
func (l *loop) end(i int, err error) error {
	f := &l.flights[i]
	l.ended++
	l.tally.add(err)
	// As the others do: closing forgets the connection instead of keeping its ports for a minute.
	if err := unix.SetsockoptLinger(f.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	if err := unix.Close(f.fd); err != nil {
		return err
	}
	if l.begun < l.n {
		return l.begin(i)
	}
	return nil
}

var (
	headEnd       = []byte("\r\n\r\n")
	contentLength = []byte("\r\nContent-Length: ")
)

// look reports whether the answer is whole, and what is wrong with it.
func (f *flight) look() (whole bool, err error) {
	got := f.response[:f.length]
	end := bytes.Index(got, headEnd)
	if end < 0 {
		return false, nil
	}
	head, rest := got[:end+2], got[end+4:]
	at := bytes.Index(head, contentLength)
	if at < 0 {
		return false, errors.New("no length")
	}
	value, _, _ := bytes.Cut(head[at+len(contentLength):], []byte{'\r'})
	length, err := strconv.Atoi(string(value))
	if err != nil || len(rest) < length {
		return false, err
	}
	if len(head) < len("HTTP/1.1 200") {
		return false, errors.New("no status")
	}
	status, err := strconv.Atoi(string(head[len("HTTP/1.1 "):len("HTTP/1.1 200")]))
	if err != nil {
		return false, err
	}
	return true, check(status, rest)
}
