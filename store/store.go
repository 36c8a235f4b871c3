// Package store answers one question: where do bytes lie? A Store keeps named objects: the files of a dataset. Dir is a
// Store in a local directory, package s3 one in an object store. The text of Store has the promises of both, which
// storetest.Run checks.
package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"
)

// The errors that a Store's methods wrap.
var (
	// ErrNotExist: no object has the name. It is fs.ErrNotExist.
	ErrNotExist = fs.ErrNotExist
	// ErrExist: CreateIfAbsent found an object of that name and did not change it.
	ErrExist = fs.ErrExist
	// ErrName: the name is not valid (see CheckName).
	ErrName = errors.New("not a valid object name")
	// ErrChanged: an object was replaced or deleted while it was read, and its bytes are gone.
	ErrChanged = errors.New("replaced or deleted while it was being read")
	// ErrUnavailable: a remote store has failed for longer than the Store waits.
	ErrUnavailable = errors.New("unavailable")
	// ErrLockLost: another process has taken a Lock of this Store. The Store refuses all further writes.
	ErrLockLost = errors.New("the lock has passed to another process")
)

// Store keeps objects: names with bytes.
//
// Names. A name is a slash-separated relative path that passes CheckName; every method refuses others with ErrName.
// Folders are no objects: a folder exists while objects are in it. In a file system, something else than a regular file
// may have the name, such as a named pipe: opening or deleting it is an *IrregularError, never a wait. A symbolic link
// is read as the file or the folder to which it leads. Put replaces the link, Delete deletes it. No Lock and no draft
// is a link.
//
// Atomic. An object that can be opened or listed is complete, even if the process or the machine dies: its bytes are
// those of one Put, one CreateIfAbsent or one published Draft, never a part or a mixture. An open object keeps its
// bytes while the name is replaced or deleted. A place that cannot keep them, such as an object store, fails further
// reads with ErrChanged, and never returns other bytes.
//
// Durable. When Put, CreateIfAbsent, Draft.Publish or Delete returns nil, its effect survives a power loss. Effects of
// successive calls survive in order: the second is never seen without the first. So a commit record written after its
// files proves that the files exist.
//
// Concurrent. All methods may be called from several goroutines, and by several processes on one place. A Draft is for
// one goroutine at a time. Contexts bound the waiting for a remote; the context of Create and Open also bounds what
// they return. A call that fails because of its context, or because a remote did not answer, has its whole effect or
// none.
//
// Exclusive. A Lock belongs to the Store that returned it, and excludes other processes that call Lock. Where the
// system cannot end a Lock with its process, it is a lease that its holder renews. Once another process has taken it,
// every method that changes something fails with ErrLockLost, so that a process that was stopped for longer than the
// lease cannot continue. A request already in flight may still take effect later:
//
//   - a CreateIfAbsent, if the name has not been created since;
//   - a Put, if no other bytes have been put under the name since its holder looked;
//   - a Delete, in any case;
//   - a Publish, unless its draft was swept.
//
// The caller of such a request receives ErrLockLost, if it is alive. The next holder of a Lease therefore fences:
// before it reads, it creates every name that a late request could create, and it never reuses a name that a late
// request could delete.
type Store interface {
	// Put makes data the content of the name, replacing an earlier object. It keeps no reference to data.
	Put(ctx context.Context, name string, data []byte) error

	// CreateIfAbsent makes data the content of the name. If the name exists, it changes nothing and the error wraps
	// ErrExist. Of concurrent calls exactly one succeeds.
	CreateIfAbsent(ctx context.Context, name string, data []byte) error

	// Create begins an object that exceeds memory, or that must appear after others. Draft.Publish makes it visible.
	Create(ctx context.Context, name string) (Draft, error)

	// Open opens an object for random access. The error for a missing one is ErrNotExist.
	Open(ctx context.Context, name string) (Object, error)

	// List yields the objects whose names begin with prefix, ordered by name, and ends after the first error. It omits
	// drafts and locks. The prefix may end within an element; "" lists all.
	List(ctx context.Context, prefix string) iter.Seq2[Entry, error]

	// Folders yields the names of the folders directly in a folder, in any order, and ends after the first error. It
	// yields folders that contain objects, and perhaps folders that are empty or contain only locks or drafts. In a file
	// system it also yields names that are neither folders nor files. The given name ends in a slash, the yielded names do
	// not.
	Folders(ctx context.Context, folder string) iter.Seq2[string, error]

	// Delete removes the object. A missing object is no error.
	Delete(ctx context.Context, name string) error

	// Sweep removes drafts of dead processes, of names that begin with prefix and for which ours is true. The caller
	// must hold the lock of these names, so that no other process has drafts of them. ours is needed because a prefix
	// alone may include names of others. Sweep also makes durable what a dead process published, created or deleted
	// there but did not sync: a resumed scan relies on it.
	Sweep(ctx context.Context, prefix string, ours func(name string) bool) error

	// Lock takes the exclusive right to the name, and writes holder (at most MaxHolder bytes) for others to read. The
	// last element of the name is `lock` or ends in `.lock` (see IsLock). The lock ends with Unlock or with the process; a
	// lease ends some time after the process (see s3). If the lock is held, in this process or another, the error is a
	// *HeldError. Lock does not wait for a holder to finish. It may wait until it can tell whether the holder is alive.
	Lock(ctx context.Context, name string, holder []byte) (Unlocker, error)

	// Held returns the *HeldError with which Lock would fail now, after the same wait, or nil. It writes nothing.
	Held(ctx context.Context, name string) error
}

// Unpublished is implemented by Stores whose drafts outlive their process, invisibly.
type Unpublished interface {
	// Unpublished yields drafts that were neither published nor discarded, of living and dead processes, by their
	// final names, if these begin with prefix. Modified is when a draft was begun. It ends after the first error:
	// fs.ErrPermission if the right to read is not enough, errors.ErrUnsupported if the store has no such list.
	Unpublished(ctx context.Context, prefix string) iter.Seq2[Entry, error]
}

// Folders is implemented by Stores with real folders, which stay when they are empty.
type Folders interface {
	// RemoveEmpty removes the folder and the folders below it, if they contain nothing, not even a lock or a draft. A
	// folder that the system refuses to remove stays: an empty folder does no harm. The caller must know that no
	// process begins to write there: its first file could not be created if the folder disappears.
	RemoveEmpty(ctx context.Context, folder string) error
}

// Draft is an object being written. Call Write any number of times, then Seal, then Publish; or Discard before Publish
// has succeeded. Sealing several drafts before publishing them makes them appear in a reliable order.
type Draft interface {
	io.Writer
	// Seal ends the writing and makes the bytes durable, without a name. A sealed Draft accepts no Write.
	Seal() error
	// Publish makes the sealed Draft the content of its name, replacing an earlier object.
	Publish(ctx context.Context) error
	// Discard drops the Draft. After Publish it does nothing.
	Discard() error
}

// Object is an object opened for reading.
type Object interface {
	io.ReaderAt
	io.Closer
	// Size returns the number of bytes.
	Size() int64
}

// Entry describes one object of a List.
type Entry struct {
	Name     string
	Size     int64 // bytes; or Irregular
	Modified time.Time
}

// Irregular is the Size of an entry that takes the place of an object but is no file. So a reader finds the name taken,
// and Open says by what. It may be a link to a missing folder of objects.
const Irregular = -1

// IrregularError says what is in the place of an object, where, and what to do.
type IrregularError struct{ What string }

func (e *IrregularError) Error() string { return e.What }

// Unlocker releases a Lock. Unlock may be called more than once.
type Unlocker interface{ Unlock() error }

// Lease is the Unlocker of a Lock that is a lease.
type Lease interface {
	Unlocker
	// Late reports whether a request of an earlier holder may still arrive, because that holder is dead or got no answer.
	Late() bool
	// Fenced says that a late request can do no harm any more. Until then, Late is true for the next holder, too.
	Fenced()
}

// IsLock reports whether a name is one for Lock: its last element is `lock` or ends in `.lock`. No object has such a
// name, and List omits them.
func IsLock(name string) bool {
	base := name[strings.LastIndexByte(name, '/')+1:]
	return base == "lock" || strings.HasSuffix(base, ".lock")
}

// MaxHolder bounds the text about the holder in a lock, in bytes.
const MaxHolder = 4096

// HeldError says that the Lock is held.
type HeldError struct {
	Name   string
	Holder []byte // the holder's text; may be empty
}

func (e *HeldError) Error() string { return fmt.Sprintf("%s is held: %s", e.Name, e.Holder) }

// maxName bounds an object's name, in bytes, as S3 does.
const maxName = 1024

// CheckName returns an error that wraps ErrName if a name is not valid in every Store. A valid name is a relative path
// of 1 to 1,024 bytes of printable ASCII without backslash. No element is empty or begins with a dot (drafts have such
// names).
func CheckName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("%w: %d bytes", ErrName, len(name))
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; c < 0x20 || c > 0x7e || c == '\\' {
			return fmt.Errorf("%w: byte %#02x in %q", ErrName, c, name)
		}
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || element[0] == '.' {
			return fmt.Errorf("%w: element %q in %q", ErrName, element, name)
		}
		if len(element) > 200 {
			return fmt.Errorf("%w: an element longer than 200 bytes in %q", ErrName, name)
		}
	}
	return nil
}

// Try returns an error if it is certain that nothing can be written to a Store. It writes nothing. For a remote Store
// it checks that the place exists and may be listed.
func Try(ctx context.Context, s Store) error {
	if dir, ok := s.(*Dir); ok {
		return dir.Writable()
	}
	for _, err := range s.List(ctx, "") {
		return err // nil if it has an object
	}
	return nil
}

// SumOf returns the SHA-256 of an object in hex.
func SumOf(object Object) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(object, 0, object.Size())); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// ReadAll returns the complete content of an object of at most limit bytes; a bigger object is an error.
func ReadAll(ctx context.Context, s Store, name string, limit int64) ([]byte, error) {
	data, err := ReadInto(ctx, s, name, limit, nil)
	return slices.Clip(data), err
}

// ReadInto is ReadAll into the memory of a slice that is no longer needed, if it is long enough; else the memory is
// somewhat longer than the object, which may grow.
func ReadInto(ctx context.Context, s Store, name string, limit int64, memory []byte) ([]byte, error) {
	object, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer object.Close()
	if object.Size() > limit {
		return nil, fmt.Errorf("cannot read %s: %d bytes, more than %d", name, object.Size(), limit)
	}
	if memory == nil || int64(cap(memory)) < object.Size() {
		memory = make([]byte, 0, object.Size()+object.Size()/16)
	}
	data := memory[:object.Size()]
	if _, err := io.ReadFull(io.NewSectionReader(object, 0, object.Size()), data); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return data, nil
}
