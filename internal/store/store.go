// Package store answers one question: where do bytes lie? A Store keeps named objects: the files of a dataset. The
// local directory (Dir) is one; an object store (package s3) is another. What each of them promises stands at the
// interface, and storetest.Run checks it.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"
	"time"
)

// The errors that a Store's methods wrap.
var (
	// ErrNotExist: there is no object of that name. It is fs.ErrNotExist, so that both spellings work.
	ErrNotExist = fs.ErrNotExist
	// ErrExist: CreateIfAbsent found an object of that name, and left it as it was.
	ErrExist = fs.ErrExist
	// ErrName: the name is none that a Store takes (see CheckName).
	ErrName = errors.New("not a valid object name")
	// ErrChanged: an object that is being read was replaced or deleted, and the Store has its bytes no more.
	ErrChanged = errors.New("replaced or deleted while it was being read")
	// ErrUnavailable: a remote has not answered, or not well, for longer than it was worth waiting.
	ErrUnavailable = errors.New("unavailable")
	// ErrLockLost: a Lock of this Store has passed to somebody else, and nothing is written through it any more.
	ErrLockLost = errors.New("the lock has passed to another process")
)

// Store keeps objects: names with bytes.
//
// Names. A name is a slash-separated relative path that passes CheckName; every method refuses others with ErrName.
// Folders are no objects: they exist by their objects, and nobody creates or deletes them.
//
// Whole or not at all. An object that can be opened or listed is complete: its bytes are those of one Put, one
// CreateIfAbsent or one published Draft, never a part of them and never a mixture, whenever a process or the machine
// dies. A reader that has opened an object goes on reading the same bytes while the name is replaced or deleted; or, where
// the place cannot keep them, as an object store does not, its reads fail with ErrChanged. It never reads other bytes.
//
// Durable when said. When Put, CreateIfAbsent, Draft.Publish or Delete returns nil, what it did survives a loss of
// power. Two such calls, one after the other, survive in that order: the second is never seen without the first. That
// is what makes a commit record that was written after its files mean that the files are there.
//
// Who may call. All methods may be called from several goroutines, and by several processes on one place; a Draft is
// for one goroutine at a time. Contexts bound the waiting for a remote; that of Create and Open goes with what they
// return. A call that fails because of its context, or because a remote did not answer, may or may not have had its
// effect, but never half of it.
//
// Who is alone. A Lock keeps two processes apart as long as each calls the Store that gave it the Lock. Where the system
// itself cannot end a Lock with its process, the Lock is a lease that its holder renews; once it has passed to somebody
// else, every method that changes something fails with ErrLockLost, so that who was stopped for longer than the lease
// does not go on where another has begun. One request may have been on its way already, and is heard later than that: a
// CreateIfAbsent where nothing of that name has been created since, a Put where nothing was put there since its holder
// looked, a Delete in any case, a Publish unless its draft was swept. Its caller is told ErrLockLost, if it lives. Who
// takes a Lease therefore fences: it creates what the late one would create, before it reads what there is, and gives no
// name again that the late one may delete.
type Store interface {
	// Put makes data the content of the name, whatever it was before. It keeps no reference to data.
	Put(ctx context.Context, name string, data []byte) error

	// CreateIfAbsent makes data the content of the name unless it has one; then it changes nothing and returns an
	// error that wraps ErrExist. Of several callers at once exactly one succeeds.
	CreateIfAbsent(ctx context.Context, name string, data []byte) error

	// Create begins an object that is too big for memory, or that must not appear before others do. Nothing shows
	// under the name until Draft.Publish.
	Create(ctx context.Context, name string) (Draft, error)

	// Open opens an object for reading at any place. A missing one is ErrNotExist.
	Open(ctx context.Context, name string) (Object, error)

	// List yields the objects whose names begin with prefix, in the order of their names, and ends after the first
	// error. Drafts are not listed, nor are locks. The prefix need not end at a slash; "" is everything.
	List(ctx context.Context, prefix string) iter.Seq2[Entry, error]

	// Delete removes the object. A missing one is no error.
	Delete(ctx context.Context, name string) error

	// Sweep removes what drafts of dead processes left behind, of names that begin with prefix and that ours reports
	// true for. The caller must know that nobody else has drafts of these names: it holds the lock of what it sweeps. A
	// prefix alone seldom knows: names that go on differently may be somebody else's. It also makes durable what the
	// dead had published, created or deleted there, and were killed before they could: whoever resumes relies on it.
	Sweep(ctx context.Context, prefix string, ours func(name string) bool) error

	// Lock takes the exclusive right that goes by the name, and writes holder (at most MaxHolder bytes) where others
	// can read it. The name's last element is `lock` or ends in `.lock` (see IsLock). It ends with Unlock, or with the
	// process, however that dies; a lease ends some time after the process (s3 says when). While somebody else holds
	// it, in this process or another, the error is a *HeldError. Lock does not wait for a holder to finish; at most it
	// waits until it can tell a living one from a dead one.
	Lock(ctx context.Context, name string, holder []byte) (Unlocker, error)
}

// Unpublished is what a Store is too whose Drafts outlive their process where nobody sees them.
type Unpublished interface {
	// Unpublished yields the Drafts of names that begin with prefix that were neither published nor discarded, those of the
	// living and those of the dead, by the names that they would have; Modified is when they were begun. It ends after the
	// first error: fs.ErrPermission where reading alone gives no right to know, errors.ErrUnsupported where the place has
	// no such list.
	Unpublished(ctx context.Context, prefix string) iter.Seq2[Entry, error]
}

// Draft is an object in the making. After Create: any number of Writes, then Seal, then Publish; or Discard at any
// time before Publish has succeeded. Seal and Publish are apart so that several drafts can be made durable first and
// then appear in an order that readers may rely on.
type Draft interface {
	io.Writer
	// Seal ends the writing and makes the bytes durable, still under no name. A sealed Draft takes no more Writes.
	Seal() error
	// Publish makes the sealed Draft the content of its name, replacing what was there.
	Publish(ctx context.Context) error
	// Discard drops the Draft. After Publish it does nothing.
	Discard() error
}

// Object is an object opened for reading.
type Object interface {
	io.ReaderAt
	io.Closer
	// Size is the number of bytes.
	Size() int64
}

// Entry is one line of a List.
type Entry struct {
	Name     string
	Size     int64
	Modified time.Time
}

// Unlocker gives a Lock back. Unlock may be called more than once.
type Unlocker interface{ Unlock() error }

// Lease is the Unlocker of a Lock that is a lease.
type Lease interface {
	Unlocker
	// Late reports whether a request of an earlier holder may still be on its way: one that died, or did not hear an answer.
	Late() bool
	// Fenced says that such a request can do no harm any more. Until it is called, who has the Lock next is told too.
	Fenced()
}

// IsLock reports whether a name is one for Lock: its last element is `lock` or ends in `.lock`. List shows no such names,
// and they are no objects' names.
func IsLock(name string) bool {
	base := name[strings.LastIndexByte(name, '/')+1:]
	return base == "lock" || strings.HasSuffix(base, ".lock")
}

// MaxHolder bounds what a lock says about its holder, in bytes.
const MaxHolder = 4096

// HeldError says that somebody else holds a Lock.
type HeldError struct {
	Name   string
	Holder []byte // what the holder wrote; may be empty
}

func (e *HeldError) Error() string { return fmt.Sprintf("%s is held: %s", e.Name, e.Holder) }

// maxName bounds an object's name, in bytes: what S3 takes at most.
const maxName = 1024

// CheckName reports, as an error that wraps ErrName, why a name cannot be an object's: it must be valid in every
// Store, so it is 1 to 1,024 bytes of printable ASCII without backslash, a relative path without empty elements, and
// none of its elements begins with a dot (such names are the drafts').
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

// ReadAll returns the whole content of an object of at most limit bytes; a bigger one is an error.
func ReadAll(ctx context.Context, s Store, name string, limit int64) ([]byte, error) {
	object, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer object.Close()
	if object.Size() > limit {
		return nil, fmt.Errorf("cannot read %s: %d bytes, more than %d", name, object.Size(), limit)
	}
	data := make([]byte, object.Size())
	if _, err := io.ReadFull(io.NewSectionReader(object, 0, object.Size()), data); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return data, nil
}
