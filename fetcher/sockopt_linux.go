package fetcher

import "syscall"

// bindAddressNoPort is chooseLate for net.Dialer.
func bindAddressNoPort(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { chooseLate(int(fd)) })
}

// chooseLate lets the kernel choose the local port at connect, when it knows the other end, instead of at bind: else a
// source address would allow no more than its 28,000 ports in all, whatever the destinations.
func chooseLate(fd int) {
	const ipBindAddressNoPort = 24 // IP_BIND_ADDRESS_NO_PORT, linux/in.h
	// Kernels before 4.2 do not know it; then the limit stands.
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, ipBindAddressNoPort, 1)
}
