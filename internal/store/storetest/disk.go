package storetest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bulkscan/bulkscan/internal/store"
)

// Disk is a store.Disk in memory that fails at a chosen call, is full, or loses power. After a power loss it has what was
// synced, and any part of the rest, in any order.
//
// Durability follows POSIX, read to the disadvantage of the program. A file's bytes are durable after Sync. Before it, a
// prefix of them may be durable, or nothing, or as many zeros. A folder's names are durable after SyncFolder of the folder.
// Before it, each creation, link, rename and removal in it may be durable or not, independently of earlier ones. A Sync
// that fails has lost the bytes: a later Sync does not bring them back.
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
	Op   string // create, open, stat, walk, mkdir, link, rename, remove, sync folder, lock, unlock, read, write, sync, close
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

// Loss is what is lost when the process or the power ends.
type Loss int

// The losses. Values above Scrambled are Scrambled with another seed.
const (
	Nothing   Loss = iota // the process was killed: the system still writes everything
	Unsynced              // everything that was not synced
	Contents              // bytes that were not synced; names are kept
	Scrambled             // a random choice of unsynced names and bytes
)

func (l Loss) String() string {
	if l < Scrambled {
		return [...]string{"nothing lost", "all lost that was not synced", "bytes lost, names kept"}[l]
	}
	return fmt.Sprintf("scrambled with seed %d", l-Scrambled)
}

// Restart ends all use of the Disk and returns the Disk that is left.
func (d *Disk) Restart(loss Loss) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	after := NewDisk()
	after.Room, after.NoLinks = d.Room, d.NoLinks
	s := &survival{loss: loss, random: rand.New(rand.NewPCG(uint64(loss), 1)), nodes: map[*node]*node{}}
	if loss == Nothing {
		after.root = s.alive(d.root)
	} else {
		after.root = s.of(d.root)
	}
	return after
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

// survival copies what survives a loss.
type survival struct {
	loss   Loss
	random *rand.Rand
	nodes  map[*node]*node // a file with two names is copied once
}

// alive copies a node with its unsynced changes.
func (s *survival) alive(n *node) *node {
	if n == nil {
		return nil
	}
	if kept := s.nodes[n]; kept != nil {
		return kept
	}
	kept := newFolder()
	s.nodes[n] = kept
	kept.folder, kept.data, kept.durable, kept.lost = n.folder, slices.Clone(n.data), n.durable, n.lost
	for name, child := range n.names {
		kept.names[name] = s.alive(child)
	}
	for name, child := range n.durableNames {
		kept.durableNames[name] = s.alive(child)
	}
	for _, r := range n.pending {
		kept.pending = append(kept.pending, rename{r.from, r.to, s.alive(r.node)})
	}
	return kept
}

// of copies what a power loss leaves of a node.
func (s *survival) of(n *node) *node {
	if kept := s.nodes[n]; kept != nil {
		return kept
	}
	kept := newFolder()
	s.nodes[n] = kept
	if !n.folder {
		kept.folder, kept.data = false, slices.Clone(s.bytes(n))
		kept.durable = kept.data
		return kept
	}
	names := maps.Clone(n.durableNames)
	for _, r := range n.pending {
		if s.loss == Contents || s.loss >= Scrambled && s.random.IntN(2) == 0 {
			r.apply(names)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) { // sorted, so that a seed gives the same choices
		kept.names[name] = s.of(names[name])
		kept.durableNames[name] = kept.names[name]
	}
	return kept
}

func (s *survival) bytes(n *node) []byte {
	if s.loss < Scrambled {
		return n.durable
	}
	switch s.random.IntN(4) {
	case 0:
		return n.durable
	case 1:
		return n.data[:max(len(n.durable), s.random.IntN(len(n.data)+1))]
	case 2:
		return append(slices.Clone(n.durable), make([]byte, len(n.data)-len(n.durable))...)
	default:
		return n.data
	}
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
		folder.change(rename{from: name, node: n})
		return nil
	})
}

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
