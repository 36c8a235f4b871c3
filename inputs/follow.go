package inputs

import (
	"context"
	"crypto/sha256"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

const (
	followEvery = 5 * time.Second
	followRead  = 6 // every so many looks the bytes count, and not only size and time: 30 s
)

// Follow calls changed each time that a file has other bytes than before, until the context ends. It looks at size and
// time every 5 s, and at the bytes every 30 s. A file that cannot be read is looked at again.
func Follow(ctx context.Context, path string, changed func()) {
	type look struct {
		size int64
		time time.Time
	}
	var last look
	sum, _ := sumOfFile(path)
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		now := look{info.Size(), info.ModTime()}
		if now == last && n%followRead != 0 {
			continue
		}
		last = now
		if is, err := sumOfFile(path); err == nil && is != sum {
			sum = is
			changed()
		}
	}
}

func sumOfFile(path string) (sum [sha256.Size]byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer file.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	return [sha256.Size]byte(hash.Sum(nil)), err
}

// FollowedOptOut is an OptOut that grows with its file. Entries are only added: a file that is being written may lack
// some for a moment, and those sites have asked not to be contacted. An entry that was deleted ends with the process.
type FollowedOptOut struct {
	path string
	list atomic.Pointer[OptOut]
}

// FollowOptOut reads a file as ReadOptOut does. Follow has to be called for it to be read again.
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
// were added, or with the error of a file that cannot be read: then the entries stay.
func (f *FollowedOptOut) Follow(ctx context.Context, changed func(added int, err error)) {
	Follow(ctx, f.path, func() {
		next, err := ReadOptOut(f.path)
		if err != nil {
			changed(0, err)
			return
		}
		was := f.list.Load()
		maps.Copy(next.hosts, was.hosts)
		maps.Copy(next.ranges, was.ranges)
		for _, bits := range was.bits {
			if !slices.Contains(next.bits, bits) {
				next.bits = append(next.bits, bits)
			}
		}
		f.list.Store(next)
		changed(next.entries()-was.entries(), nil)
	})
}

func (s *OptOut) entries() int { return len(s.hosts) + len(s.ranges) }
