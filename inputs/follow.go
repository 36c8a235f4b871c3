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

// follow calls read each time that a file has other bytes than those of the sum, until the context ends; read returns
// the sum of what it has read. A file that is gone, or cannot be read, is tried again every 5 s, and failed is called
// once for each error that differs from the one before.
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

// fileSum tells the bytes of a file from others.
type fileSum [sha256.Size]byte

// FollowedOptOut is an OptOut that grows with its file. Entries are only added: a file that is being written may lack
// some for a moment, and those sites have asked not to be contacted. An entry that was deleted ends with the process.
type FollowedOptOut struct {
	path string
	list atomic.Pointer[OptOut]
}

// FollowOptOut reads a file as ReadOptOut does. Its method Follow has to be called for it to be read again.
func FollowOptOut(path string) (*FollowedOptOut, error) {
	list, err := ReadOptOut(path)
	if err != nil {
		return nil, err
	}
	f := &FollowedOptOut{path: path}
	f.list.Store(list)
	return f, nil
}

// Contains is that of the OptOut as it is now.
func (f *FollowedOptOut) Contains(host string) bool { return f.list.Load().Contains(host) }

// Covers is that of the OptOut as it is now.
func (f *FollowedOptOut) Covers(addr netip.Addr) bool { return f.list.Load().Covers(addr) }

// Entries returns the number of hosts, domains and ranges.
func (f *FollowedOptOut) Entries() int { return f.list.Load().entries() }

// Follow reads the file again when it changes, until the context ends. It calls changed with the number of entries that
// were added, or once with the error of a file that is gone or cannot be read: then the entries stay.
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
