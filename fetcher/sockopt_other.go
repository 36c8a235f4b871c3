//go:build !linux

package fetcher

import "syscall"

// bindAddressNoPort is nothing where the system has no such option.
func bindAddressNoPort(_, _ string, _ syscall.RawConn) error { return nil }
