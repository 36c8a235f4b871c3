package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Dir is a Store in a local directory: an object is a file under its name.
//
// A file is written under a temporary name in its final folder (`.part.parquet.ABCDEFGH.bulkscan.tmp`), then synced,
// closed and renamed, and its folder is synced. A rename is atomic, but durable only with the folder. Without the sync
// of the file, a file system may keep the new name and lose the bytes. Names that begin with a dot are hidden from List
// and skipped by query engines that read a folder.
type Dir struct {
	root    string
	disk    Disk
	durable sync.Map // paths of folders below root whose names this Dir has made durable
}

// NewDir returns the Store in the directory root, which the first object creates.
func NewDir(root string) (*Dir, error) { return NewDirOn(system{}, root) }

// NewDirOn is NewDir on a given disk.
func NewDirOn(disk Disk, root string) (*Dir, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("cannot use the directory %s: %w", root, err)
	}
	return &Dir{root: root, disk: disk}, nil
}

// Root is the absolute path of the directory.
func (d *Dir) Root() string { return d.root }

// Writable returns an error if it is certain that nothing can be written: the directory, or the nearest existing one
// above it, is no directory, or may not be written to. It writes nothing itself.
func (d *Dir) Writable() error {
	for path := d.root; ; path = filepath.Dir(path) {
		switch info, err := d.disk.Stat(path); {
		case err == nil && !info.IsDir():
			return fmt.Errorf("cannot write to %s: %s is no folder", d.root, path)
		case err == nil:
			if err := mayWrite(path); err != nil {
				return fmt.Errorf("cannot write to %s: %w", d.root, &fs.PathError{Op: "write to", Path: path, Err: err})
			}
			return nil
		case path == filepath.Dir(path):
			return nil
		}
	}
}

// tempSuffix ends temporary names. No other program's names end so: Sweep deletes by them.
const tempSuffix = ".bulkscan.tmp"

// path returns the path of an object, unless the context of a call has ended.
func (d *Dir) path(ctx context.Context, call, name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("cannot %s %s: %w", call, name, err)
	}
	return filepath.Join(d.root, filepath.FromSlash(name)), nil
}

// Put implements Store.
func (d *Dir) Put(ctx context.Context, name string, data []byte) error {
	draft, err := d.write(ctx, name, data)
	if err != nil {
		return err
	}
	return errors.Join(draft.Publish(ctx), draft.Discard())
}

// CreateIfAbsent implements Store. A hard link fails if the name exists, and otherwise shows the complete file. File
// systems without hard links (exFAT, some network mounts) get an empty file first, over which the complete one is
// renamed. A crash between the two steps leaves a claimed name, which List does not show and Sweep removes.
func (d *Dir) CreateIfAbsent(ctx context.Context, name string, data []byte) error {
	draft, err := d.write(ctx, name, data)
	if err != nil {
		return err
	}
	err = d.disk.Link(draft.temp, draft.final)
	if errors.Is(err, fs.ErrExist) && d.same(draft.temp, draft.final) {
		err = nil // the answer to the link was lost, and the network file system repeated it
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		var claim DiskFile
		// The draft is durable before the claim: an empty file beside its draft is one that a killed process has claimed.
		if err = d.disk.SyncFolder(filepath.Dir(draft.final)); err == nil {
			claim, err = d.disk.Create(draft.final)
		}
		if err == nil {
			err = errors.Join(claim.Close(), draft.Publish(ctx))
			if info, errStat := d.disk.Stat(draft.final); err != nil && errStat == nil && info.Size() == 0 {
				// the claim is still there
				err = errors.Join(err, d.disk.Remove(draft.final))
			}
		}
	} else if err == nil {
		err = d.disk.SyncFolder(filepath.Dir(draft.final))
	}
	if err = errors.Join(err, draft.Discard()); err != nil {
		return fmt.Errorf("cannot create %s: %w", name, err)
	}
	return nil
}

// same reports whether two paths are names of one file.
func (d *Dir) same(a, b string) bool {
	one, err1 := d.disk.Stat(a)
	other, err2 := d.disk.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(one, other)
}

// write writes data to a sealed draft.
func (d *Dir) write(ctx context.Context, name string, data []byte) (*dirDraft, error) {
	draft, err := d.create(ctx, name)
	if err != nil {
		return nil, err
	}
	_, err = draft.Write(data)
	if err == nil {
		err = draft.Seal()
	}
	if err != nil {
		return nil, errors.Join(err, draft.Discard())
	}
	return draft, nil
}

// Create implements Store.
func (d *Dir) Create(ctx context.Context, name string) (Draft, error) { return d.create(ctx, name) }

func (d *Dir) create(ctx context.Context, name string) (*dirDraft, error) {
	final, err := d.path(ctx, "create", name)
	if err != nil {
		return nil, err
	}
	folder, base := filepath.Split(final)
	if err := d.makeFolder(filepath.Clean(folder)); err != nil {
		return nil, fmt.Errorf("cannot create the folder of %s: %w", name, err)
	}
	temp := filepath.Join(folder, tempName(base))
	file, err := d.disk.Create(temp)
	if err != nil {
		return nil, fmt.Errorf("cannot create %s: %w", name, err)
	}
	return &dirDraft{disk: d.disk, name: name, temp: temp, final: final, file: file}, nil
}

// dirDraft is a file under its temporary name. file is nil once sealed, temp is "" once published or discarded.
type dirDraft struct {
	disk              Disk
	name, temp, final string
	file              DiskFile
}

func (w *dirDraft) Write(p []byte) (int, error) {
	if w.file == nil {
		return 0, fmt.Errorf("cannot write %s: %w", w.name, fs.ErrClosed)
	}
	n, err := w.file.Write(p)
	if err != nil {
		err = fmt.Errorf("cannot write %s: %w", w.name, err)
	}
	return n, err
}

func (w *dirDraft) Seal() error {
	if w.file == nil {
		return fmt.Errorf("cannot seal %s: %w", w.name, fs.ErrClosed)
	}
	err := w.file.Sync()
	err = errors.Join(err, w.file.Close())
	w.file = nil
	if err != nil {
		return fmt.Errorf("cannot seal %s: %w", w.name, err)
	}
	return nil
}

func (w *dirDraft) Publish(ctx context.Context) error {
	if w.temp == "" || w.file != nil {
		return fmt.Errorf("cannot publish %s: it is not a sealed draft", w.name)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cannot publish %s: %w", w.name, err)
	}
	if err := w.disk.Rename(w.temp, w.final); err != nil {
		return fmt.Errorf("cannot publish %s: %w", w.name, err)
	}
	w.temp = ""
	if err := w.disk.SyncFolder(filepath.Dir(w.final)); err != nil {
		return fmt.Errorf("cannot publish %s: %w", w.name, err)
	}
	return nil
}

func (w *dirDraft) Discard() error {
	if w.temp == "" {
		return nil
	}
	var err error
	if w.file != nil {
		err = w.file.Close()
		w.file = nil
	}
	err = errors.Join(err, w.disk.Remove(w.temp))
	w.temp = ""
	if err != nil {
		return fmt.Errorf("cannot discard %s: %w", w.name, err)
	}
	return nil
}

// Open implements Store.
func (d *Dir) Open(ctx context.Context, name string) (Object, error) {
	path, err := d.path(ctx, "open", name)
	if err != nil {
		return nil, err
	}
	file, err := d.disk.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", name, err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot open %s: %w", name, err), file.Close())
	}
	return &dirObject{file, info.Size()}, nil
}

type dirObject struct {
	DiskFile
	size int64
}

func (o *dirObject) Size() int64 { return o.size }

// List implements Store. It reads the folder that the prefix names and those below it.
func (d *Dir) List(ctx context.Context, prefix string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		entries, err := d.walk(ctx, prefix, func(string) {}, func(base string) bool { return base[0] != '.' })
		if err != nil {
			yield(Entry{}, fmt.Errorf("cannot list %s: %w", prefix, err))
			return
		}
		for _, entry := range entries {
			if !yield(entry, nil) {
				return
			}
		}
	}
}

// Folders implements Store. It reads that folder only.
func (d *Dir) Folders(ctx context.Context, folder string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var names []string
		start, err := d.path(ctx, "list", strings.TrimSuffix(folder, "/"))
		if err == nil {
			err = d.disk.Walk(start, func(path string, file fs.DirEntry, err error) error {
				switch {
				case errors.Is(err, fs.ErrNotExist):
					return nil
				case err != nil || path == start || file.Type().IsRegular():
					return err
				case file.Name()[0] != '.':
					names = append(names, folder+file.Name())
				}
				if file.IsDir() {
					return fs.SkipDir
				}
				return nil
			})
		}
		if err != nil {
			yield("", fmt.Errorf("cannot list %s: %w", folder, err))
			return
		}
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
	}
}

// maxLinks bounds the links to folders that a walk follows, since links that lead into each other make endless paths.
const maxLinks = 1 << 14

// walk collects the files whose names begin with prefix and whose last element passes keep, ordered by name. entered
// receives the paths of the folders read. Links are followed, except hidden links, links that lead to nothing, and
// links that lead to a folder that contains them. Names that are only claimed (see CreateIfAbsent) are left out.
func (d *Dir) walk(ctx context.Context, prefix string, entered func(path string), keep func(base string) bool) ([]Entry,
	error) {
	folder := ""
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		folder = prefix[:i]
		if err := CheckName(folder); err != nil {
			return nil, err
		}
	}
	start := filepath.Join(d.root, filepath.FromSlash(folder))
	var entries []Entry
	drafted := map[string]bool{} // names that have a draft, which comes before the file
	links, visit := 0, fs.WalkDirFunc(nil)
	visit = func(path string, file fs.DirEntry, err error) error {
		if err != nil {
			if info, statErr := d.disk.Stat(path); errors.Is(err, fs.ErrNotExist) || statErr == nil && info.Mode().IsRegular() {
				return ctx.Err() // the folder does not exist yet, is a file, or was deleted during the walk
			}
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if path == start {
			if file.IsDir() {
				entered(path)
			}
			return nil
		}
		relative, err := filepath.Rel(d.root, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(relative)
		if file.IsDir() {
			if file.Name()[0] == '.' || !strings.HasPrefix(name, prefix) {
				return filepath.SkipDir
			}
			entered(path)
			return nil
		}
		if file.Type()&fs.ModeSymlink != 0 && file.Name()[0] != '.' && strings.HasPrefix(name, prefix) {
			if info, err := d.disk.Stat(path); err == nil {
				file = fs.FileInfoToDirEntry(info)
			}
			if file.IsDir() && !Within(filepath.Dir(path), path) { // else the link leads to a folder that contains it
				if links++; links > maxLinks {
					return &IrregularError{fmt.Sprintf(
						"%s is one of more than %d links to folders; remove those that lead into each other", path, maxLinks)}
				}
				return d.disk.Walk(path, visit)
			}
		}
		if final, ok := draftOf(file.Name()); ok {
			drafted[strings.TrimSuffix(name, file.Name())+final] = true
		}
		entry, ok, err := entryOf(name, file, prefix, keep)
		if ok && (entry.Size != 0 || !drafted[name]) {
			entries = append(entries, entry)
		}
		return err
	}
	err := d.disk.Walk(start, visit)
	// WalkDir orders by elements; names are ordered by bytes, and '-' comes before '/'.
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, err
}

// entryOf returns the Entry of a file that walk found; ok is false if walk leaves the file out.
func entryOf(name string, file fs.DirEntry, prefix string, keep func(base string) bool) (entry Entry, ok bool,
	err error) {
	shown := name
	if file.Name()[0] == '.' {
		// If drafts are wanted, list each by its final name.
		shown = name[:len(name)-len(file.Name())] + file.Name()[1:]
	}
	if IsLock(file.Name()) || !strings.HasPrefix(shown, prefix) || !keep(file.Name()) {
		return Entry{}, false, nil
	}
	if !file.Type().IsRegular() {
		return Entry{Name: name, Size: Irregular}, true, nil
	}
	info, err := file.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, false, nil // deleted during the walk
	}
	if err != nil {
		return Entry{}, false, err
	}
	return Entry{Name: name, Size: info.Size(), Modified: info.ModTime().Round(0).In(time.UTC)}, true, nil
}

// Delete implements Store.
func (d *Dir) Delete(ctx context.Context, name string) error {
	path, err := d.path(ctx, "delete", name)
	if err != nil {
		return err
	}
	if err := d.disk.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot delete %s: %w", name, err)
	}
	// Sync even if the file was missing: the process that removed it may have died before its own sync.
	if err := d.disk.SyncFolder(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot delete %s: %w", name, err)
	}
	return nil
}

// Sweep implements Store.
func (d *Dir) Sweep(ctx context.Context, prefix string, ours func(name string) bool) error {
	var folders []string
	drafts, err := d.walk(ctx, prefix, func(folder string) { folders = append(folders, folder) }, func(base string) bool {
		_, ok := draftOf(base)
		return ok
	})
	// A process that died between a rename and its fsync left a visible name that a power loss can remove.
	for _, folder := range folders {
		if err == nil {
			if err = d.disk.SyncFolder(folder); errors.Is(err, fs.ErrNotExist) {
				err = nil // another process's, deleted meanwhile
			}
		}
	}
	if err != nil {
		return fmt.Errorf("cannot sweep %s: %w", prefix, err)
	}
	for _, draft := range drafts {
		folder, base := path.Split(draft.Name)
		final, _ := draftOf(base)
		if draft.Size == Irregular || !ours(folder+final) {
			continue
		}
		if err := d.removeDraft(draft.Name, folder+final); err != nil {
			return fmt.Errorf("cannot sweep %s: %w", prefix, err)
		}
	}
	return nil
}

// removeDraft removes a draft. If its name is only claimed, the claim is removed first: without the draft it would look
// like a file.
func (d *Dir) removeDraft(draft, final string) error {
	path := filepath.Join(d.root, filepath.FromSlash(final))
	if info, err := d.disk.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		if err := d.Delete(context.Background(), final); err != nil {
			return err
		}
	}
	err := d.disk.Remove(filepath.Join(d.root, filepath.FromSlash(draft)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// RemoveEmpty implements Folders.
func (d *Dir) RemoveEmpty(ctx context.Context, folder string) error {
	start, err := d.path(ctx, "find empty folders of", folder)
	if err != nil {
		return err
	}
	var folders []string
	err = d.disk.Walk(start, func(path string, file fs.DirEntry, err error) error {
		if err == nil && file.IsDir() {
			folders = append(folders, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return errors.Join(err, ctx.Err())
	})
	if err != nil {
		return fmt.Errorf("cannot find empty folders of %s: %w", folder, err)
	}
	for _, path := range slices.Backward(folders) {
		_ = d.disk.RemoveFolder(path) // fails if the folder is not empty
	}
	return nil
}

// randomName is how many random characters a temporary name has. They are of the alphabet of rand.Text.
const (
	randomName     = 8
	randomAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
)

// tempName returns a temporary name of a file: `.`, its name, `.ABCDEFGH.bulkscan.tmp`.
func tempName(base string) string { return "." + base + "." + rand.Text()[:randomName] + tempSuffix }

// draftOf returns the final name for a temporary name; ok is false for other names.
func draftOf(base string) (final string, ok bool) {
	end := len(base) - len(tempSuffix) - randomName - 1
	if end < 2 || base[0] != '.' || base[end] != '.' || !strings.HasSuffix(base, tempSuffix) ||
		strings.Trim(base[end+1:end+1+randomName], randomAlphabet) != "" {
		return "", false
	}
	return base[1:end], true
}

// makeFolder makes a folder and its parents durable, since a file is lost with the name of its folder. An existing
// folder is synced, too, once: the process that made it may have died before it could.
func (d *Dir) makeFolder(path string) error {
	info, err := d.disk.Stat(path)
	there := err == nil
	if there && !info.IsDir() {
		return fmt.Errorf("%s is no folder", path)
	}
	if _, done := d.durable.Load(path); done && there {
		return nil
	}
	parent := filepath.Dir(path)
	if parent == path {
		return nil
	}
	if err := d.makeFolder(parent); err != nil {
		return err
	}
	if !there {
		if err := d.disk.Mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	err = d.disk.SyncFolder(parent)
	if there && len(path) <= len(d.root) {
		err = nil // root and the folders above it are the user's and may be unreadable
	}
	if err != nil {
		return err
	}
	d.durable.Store(path, nil)
	return nil
}

// Lock implements Store by a lock of the operating system on a file of that name. The lock ends with the process: a
// file that a killed process left locks nothing.
func (d *Dir) Lock(ctx context.Context, name string, holder []byte) (Unlocker, error) {
	path, err := d.path(ctx, "lock", name)
	if err != nil {
		return nil, err
	}
	if !IsLock(name) || len(holder) > MaxHolder {
		return nil, fmt.Errorf("%w: %q as a lock", ErrName, name)
	}
	if err := d.makeFolder(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", name, err)
	}
	lock, err := d.disk.Lock(path, holder)
	if err != nil {
		return nil, named(err, name)
	}
	return lock, nil
}

// Held implements Store.
func (d *Dir) Held(ctx context.Context, name string) error {
	path, err := d.path(ctx, "lock", name)
	if err != nil {
		return err
	}
	return named(d.disk.Held(path), name)
}

// named adds the lock's name to the error of a lock.
func named(err error, name string) error {
	if held, ok := errors.AsType[*HeldError](err); ok {
		held.Name = name
		return held
	}
	if err != nil {
		return fmt.Errorf("cannot lock %s: %w", name, err)
	}
	return nil
}
