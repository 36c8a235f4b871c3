package fetcher

import "syscall"

// bindAddressNoPort is chooseLate for net.Dialer.
func bindAddressNoPort(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { chooseLate(int(fd)) })
}

// chooseLate lets the kernel choose the local port at connect instead of at bind. At bind the destination is unknown,
// so that a source address would allow only 28,000 connections in all.
func chooseLate(fd int) {
	const ipBindAddressNoPort = 24 // IP_BIND_ADDRESS_NO_PORT, linux/in.h
	// Kernels before 4.2 do not know the option, and the limit stays.
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, ipBindAddressNoPort, 1)
}
