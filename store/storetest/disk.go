package storetest

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/bulkscan/bulkscan/store"
)

// Disk is a store.Disk in memory that fails at a chosen call, is full, or loses power. After a power loss it has what
// was synced, and any part of the rest, in any order.
//
// Durability follows POSIX, read to the disadvantage of the program. A file's bytes are durable after Sync. Before it,
// a prefix of them may be durable, or nothing, or as many zeros. A folder's names are durable after SyncFolder of the
// folder. Before it, each creation, link, rename and removal in it may be durable or not, independently of earlier
// ones. A Sync that fails has lost the bytes: a later Sync does not bring them back.
type Disk struct {
	// Fail, if not nil, is called before every call with its number, from 1 on, and may make it fail. A failed call
	// has no effect, except that a failed write writes half.
	Fail func(n int, c Call) error
	// Room, if not 0, bounds the bytes of all files, plus entry bytes for each file and folder.
	Room int
	// NoLinks makes Link fail, as on file systems without hard links.
	NoLinks bool

	mu      sync.Mutex
	root    *node
	calls   []Call
	changes int
	cutAt   int  // the change that is the last, from 1 on; 0 is none
	effect  bool // the last change still has its effect
	off     bool
	locks   map[string][]byte
}

// Call is one call of a Disk.
type Call struct {
	// create, open, stat, walk, mkdir, link, rename, remove, sync folder, lock, unlock, read, write, sync, close
	Op   string
	Path string
}

// Changes reports whether a call may change what a loss of power leaves.
func (c Call) Changes() bool {
	return !slices.Contains([]string{"open", "stat", "walk", "read", "close"}, c.Op)
}

// entry is the share of Room that a file or folder takes besides its bytes.
const entry = 256

// node is a file or a folder.
type node struct {
	folder bool

	data, durable []byte // of a file: as read, and as certain to survive a power loss
	lost          bool   // a Sync has failed

	names, durableNames map[string]*node // of a folder
	pending             []rename         // since the last SyncFolder
}

// rename is a change of a folder's names: the name removed and the name added; either may be "".
type rename struct {
	from, to string
	node     *node
}

func newFolder() *node {
	return &node{folder: true, names: map[string]*node{}, durableNames: map[string]*node{}}
}

func (r rename) apply(names map[string]*node) {
	if r.from != "" {
		if names[r.from] != r.node {
			return // the name was not added, or not durably
		}
		delete(names, r.from)
	}
	if r.to != "" {
		names[r.to] = r.node
	}
}

// change applies a visible change to a folder's names.
func (n *node) change(r rename) {
	r.apply(n.names)
	n.pending = append(n.pending, r)
}

// NewDisk returns an empty Disk.
func NewDisk() *Disk { return &Disk{root: newFolder(), locks: map[string][]byte{}} }

// CutAt makes the n-th change (from 1 on) the last. With effect, it is made but returns an error.
func (d *Disk) CutAt(n int, effect bool) { d.cutAt, d.effect = n, effect }

// Calls returns the calls so far.
func (d *Disk) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Off reports whether the change of CutAt was reached.
func (d *Disk) Off() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.off
}

// Files returns the contents of all files by path, as a process sees them.
func (d *Disk) Files() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[string]string{}
	var look func(path string, n *node)
	look = func(path string, n *node) {
		if !n.folder {
			all[path] = string(n.data)
		}
		for name, child := range n.names {
			look(path+"/"+name, child)
		}
	}
	look("", d.root)
	return all
}

// do performs a call, unless the power is off.
func (d *Disk) do(op, path string, call func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return ErrCrashed
	}
	c := Call{op, path}
	d.calls = append(d.calls, c)
	if c.Changes() {
		d.changes++
		d.off = d.changes == d.cutAt
	}
	if d.off && !d.effect {
		return ErrCrashed
	}
	if d.Fail != nil {
		if err := d.Fail(len(d.calls), c); err != nil {
			return &fs.PathError{Op: op, Path: path, Err: err}
		}
	}
	err := call()
	if d.off {
		return ErrCrashed
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

// find returns the node of a path, nil where there is none.
func (d *Disk) find(path string) *node {
	n := d.root
	for name := range elements(path) {
		if n == nil || !n.folder {
			return nil
		}
		n = n.names[name]
	}
	return n
}

// elements yields the elements of a path.
func elements(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		rest := filepath.ToSlash(filepath.Clean(path))[len(filepath.VolumeName(path)):]
		for name := range strings.SplitSeq(rest, "/") {
			if name != "" && !yield(name) {
				return
			}
		}
	}
}

// parent returns the folder of a path, and its name there.
func (d *Disk) parent(path string) (*node, string, error) {
	folder := d.find(filepath.Dir(path))
	if folder == nil {
		return nil, "", syscall.ENOENT
	}
	if !folder.folder {
		return nil, "", syscall.ENOTDIR
	}
	return folder, filepath.Base(path), nil
}

// named returns the node of a path, its folder and its name there.
func (d *Disk) named(path string) (folder *node, name string, n *node, err error) {
	folder, name, err = d.parent(path)
	if err == nil && folder.names[name] == nil {
		err = syscall.ENOENT
	}
	if err != nil {
		return nil, "", nil, err
	}
	return folder, name, folder.names[name], nil
}

// room reports whether so many bytes more are free.
func (d *Disk) room(more int) bool { return d.Room == 0 || used(d.root)+more <= d.Room }

func used(n *node) int {
	sum := len(n.data)
	for _, child := range n.names {
		sum += entry + used(child)
	}
	return sum
}

// add adds a node under a path.
func (d *Disk) add(path string, n *node) error {
	folder, name, err := d.parent(path)
	switch {
	case err != nil:
		return err
	case folder.names[name] != nil:
		return syscall.EEXIST
	case !d.room(entry):
		return syscall.ENOSPC
	}
	folder.change(rename{to: name, node: n})
	return nil
}

// Create implements store.Disk.
func (d *Disk) Create(path string) (store.DiskFile, error) {
	n := &node{}
	if err := d.do("create", path, func() error { return d.add(path, n) }); err != nil {
		return nil, err
	}
	return &diskFile{d, path, n}, nil
}

// Open implements store.Disk.
func (d *Disk) Open(path string) (store.DiskFile, error) {
	var n *node
	err := d.do("open", path, func() error {
		if n = d.find(path); n == nil {
			return syscall.ENOENT
		}
		if n.folder {
			return syscall.EISDIR
		}
		// An open file stays readable: no call changes the bytes of a file with its final name.
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &diskFile{d, path, n}, nil
}

// Stat implements store.Disk.
func (d *Disk) Stat(path string) (info fs.FileInfo, err error) {
	err = d.do("stat", path, func() error {
		n := d.find(path)
		if n == nil {
			return syscall.ENOENT
		}
		info = infoOf(path, n)
		return nil
	})
	return info, err
}

// Walk implements store.Disk.
func (d *Disk) Walk(root string, visit fs.WalkDirFunc) error {
	type seen struct {
		path string
		info fs.FileInfo
	}
	var all []seen
	var look func(path string, n *node)
	look = func(path string, n *node) {
		all = append(all, seen{path, infoOf(path, n)})
		for _, name := range slices.Sorted(maps.Keys(n.names)) {
			look(filepath.Join(path, name), n.names[name])
		}
	}
	err := d.do("walk", root, func() error {
		n := d.find(root)
		if n == nil {
			return syscall.ENOENT
		}
		look(root, n)
		return nil
	})
	if err != nil {
		return visit(root, nil, err)
	}
	skipped := ""
	for _, s := range all {
		if skipped != "" && len(s.path) > len(skipped) && s.path[:len(skipped)] == skipped {
			continue
		}
		err := visit(s.path, fs.FileInfoToDirEntry(s.info), nil)
		if errors.Is(err, fs.SkipDir) && s.info.IsDir() {
			skipped = s.path + string(filepath.Separator)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Mkdir implements store.Disk.
func (d *Disk) Mkdir(path string) error {
	return d.do("mkdir", path, func() error { return d.add(path, newFolder()) })
}

// Link implements store.Disk.
func (d *Disk) Link(path, second string) error {
	return d.do("link", second, func() error {
		n := d.find(path)
		if n == nil {
			return syscall.ENOENT
		}
		if d.NoLinks {
			return syscall.EPERM
		}
		return d.add(second, n)
	})
}

// Rename implements store.Disk, within a folder.
func (d *Disk) Rename(path, to string) error {
	return d.do("rename", to, func() error {
		folder, name, n, err := d.named(path)
		if err != nil {
			return err
		}
		if filepath.Dir(path) != filepath.Dir(to) {
			return syscall.EXDEV
		}
		folder.change(rename{from: name, to: filepath.Base(to), node: n})
		return nil
	})
}

// Remove implements store.Disk.
func (d *Disk) Remove(path string) error {
	return d.do("remove", path, func() error {
		folder, name, n, err := d.named(path)
		if err != nil {
			return err
		}
		if len(n.names) > 0 {
			return syscall.ENOTEMPTY
		}
		folder.change(rename{from: name, node: n})
		return nil
	})
}

// RemoveFolder implements store.Disk.
func (d *Disk) RemoveFolder(path string) error { return d.Remove(path) }

// SyncFolder implements store.Disk.
func (d *Disk) SyncFolder(path string) error {
	return d.do("sync folder", path, func() error {
		n := d.find(path)
		if n == nil {
			return syscall.ENOENT
		}
		n.durableNames, n.pending = maps.Clone(n.names), nil
		return nil
	})
}

// Lock implements store.Disk.
func (d *Disk) Lock(path string, holder []byte) (store.Unlocker, error) {
	var held *store.HeldError
	err := d.do("lock", path, func() error {
		if by, taken := d.locks[path]; taken {
			held = &store.HeldError{Holder: by}
			return nil
		}
		if d.find(path) == nil {
			if err := d.add(path, &node{}); err != nil {
				return err
			}
		}
		d.locks[path] = slices.Clone(holder)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if held != nil {
		return nil, held
	}
	return &diskLock{d, path, false}, nil
}

// Held implements store.Disk.
func (d *Disk) Held(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if by, taken := d.locks[path]; taken {
		return &store.HeldError{Holder: by}
	}
	return nil
}

type diskLock struct {
	d    *Disk
	path string
	over bool
}

func (l *diskLock) Unlock() error {
	if l.over {
		return nil
	}
	l.over = true
	return l.d.do("unlock", l.path, func() error {
		delete(l.d.locks, l.path)
		if folder, name, n, err := l.d.named(l.path); err == nil {
			folder.change(rename{from: name, node: n})
		}
		return nil
	})
}
