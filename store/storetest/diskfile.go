package storetest

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// diskFile is an open file.
type diskFile struct {
	d    *Disk
	path string
	node *node
}

func (f *diskFile) Write(p []byte) (n int, err error) {
	n = len(p)
	full := false
	err = f.d.do("write", f.path, func() error {
		for n > 0 && !f.d.room(n) {
			n /= 2
		}
		f.node.data = append(f.node.data, p[:n]...)
		if full = n < len(p); full {
			return syscall.ENOSPC
		}
		return nil
	})
	if err == nil || full {
		return n, err
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.off {
		return 0, err
	}
	f.node.data = append(f.node.data, p[:len(p)/2]...)
	return len(p) / 2, err
}

func (f *diskFile) Sync() error {
	err := f.d.do("sync", f.path, func() error {
		if !f.node.lost {
			f.node.durable = slices.Clone(f.node.data)
		}
		return nil
	})
	if err != nil && !errors.Is(err, ErrCrashed) {
		f.d.mu.Lock()
		defer f.d.mu.Unlock()
		f.node.lost = true
	}
	return err
}

func (f *diskFile) ReadAt(p []byte, offset int64) (n int, err error) {
	var read int
	err = f.d.do("read", f.path, func() error {
		if offset < int64(len(f.node.data)) {
			read = copy(p, f.node.data[offset:])
		}
		return nil
	})
	if err == nil && read < len(p) {
		return read, io.EOF
	}
	return read, err
}

func (f *diskFile) Close() error { return f.d.do("close", f.path, func() error { return nil }) }

func (f *diskFile) Stat() (info fs.FileInfo, err error) {
	err = f.d.do("stat", f.path, func() error {
		info = infoOf(f.path, f.node)
		return nil
	})
	return info, err
}

// info describes a node.
type info struct {
	name   string
	size   int64
	folder bool
}

func infoOf(path string, n *node) fs.FileInfo {
	return info{filepath.Base(path), int64(len(n.data)), n.folder}
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return time.Now() }
func (i info) IsDir() bool        { return i.folder }
func (i info) Sys() any           { return nil }

func (i info) Mode() fs.FileMode {
	if i.folder {
		return fs.ModeDir | 0o777
	}
	return 0o666
}
