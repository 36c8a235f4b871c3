package simweb

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// waited returns how long ago a connection was established, if nothing was sent to it yet. Then Linux's time since the
// last sending counts from there, to a few milliseconds.
func waited(c net.Conn) (long time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			long = time.Duration(info.Last_data_sent) * time.Millisecond
		}
	})
	return long
}
