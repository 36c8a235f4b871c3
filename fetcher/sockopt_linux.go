package fetcher

import "syscall"

// bindAddressNoPort lets the kernel choose the local port at connect, when it knows the other end, instead of at bind:
// else a source address would allow no more than its 28,000 ports in all, whatever the destinations.
func bindAddressNoPort(_, _ string, c syscall.RawConn) error {
	const ipBindAddressNoPort = 24 // IP_BIND_ADDRESS_NO_PORT, linux/in.h
	return c.Control(func(fd uintptr) {
		// Kernels before 4.2 do not know it; then the limit stands.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, ipBindAddressNoPort, 1)
	})
}
