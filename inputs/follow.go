package inputs

import (
	"context"
	"crypto/sha256"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

const followEvery = 5 * time.Second

// follow calls read each time that the bytes of a file differ from the sum, until the context ends. read returns the
// sum of the bytes that it has read. If the file is gone or cannot be read, follow tries again every 5 s. It calls
// failed for each error that differs from the error before.
func follow(ctx context.Context, path string, sum fileSum, read func() (fileSum, error), failed func(error)) {
	logged := "" // the last error
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		info, err := os.Stat(path)
		if err == nil && !info.Mode().IsRegular() { // a pipe can be read once
			continue
		}
		now := sum
		if err == nil {
			now, err = sumFile(ctx, path)
		}
		if err == nil && now != sum {
			now, err = read()
		}
		switch {
		case err == nil:
			sum, logged = now, ""
		case err.Error() != logged:
			logged = err.Error()
			failed(err)
		}
	}
}

// fileSum identifies the bytes of a file.
type fileSum [sha256.Size]byte

// FollowedOptOut is an OptOut that grows with its file. Entries are only added: a file that is being written may lack
// some for a moment, and their sites have asked not to be contacted. A deleted entry stays until the process ends.
type FollowedOptOut struct {
	path string
	list atomic.Pointer[OptOut]
}

// FollowOptOut reads a file as ReadOptOut does. Only its method Follow reads the file again.
func FollowOptOut(path string) (*FollowedOptOut, error) {
	list, err := ReadOptOut(path)
	if err != nil {
		return nil, err
	}
	f := &FollowedOptOut{path: path}
	f.list.Store(list)
	return f, nil
}

// Contains is OptOut.Contains with the current entries.
func (f *FollowedOptOut) Contains(host string) bool { return f.list.Load().Contains(host) }

// Covers is OptOut.Covers with the current entries.
func (f *FollowedOptOut) Covers(addr netip.Addr) bool { return f.list.Load().Covers(addr) }

// Entries returns the number of hosts, domains and ranges.
func (f *FollowedOptOut) Entries() int { return f.list.Load().entries() }

// Follow reads the file again when it changes, until the context ends. It calls changed with the number of added
// entries. If the file is gone or cannot be read, it calls changed once with the error, and the entries stay.
func (f *FollowedOptOut) Follow(ctx context.Context, changed func(added int, err error)) {
	follow(ctx, f.path, f.list.Load().sum, func() (fileSum, error) {
		next, err := ReadOptOut(f.path)
		if err != nil {
			return fileSum{}, err
		}
		was := f.list.Load()
		next.addAll(&was.places)
		f.list.Store(next)
		changed(next.entries()-was.entries(), nil)
		return next.sum, nil
	}, func(err error) { changed(0, err) })
}
