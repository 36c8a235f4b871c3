//go:build !linux

package fetcher

import "syscall"

// bindAddressNoPort does nothing: only Linux has the option.
func bindAddressNoPort(_, _ string, _ syscall.RawConn) error { return nil }
