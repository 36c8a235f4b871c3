package storetest

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/bulkscan/bulkscan/store"
)

// ErrCrashed is the error of every call after a crash.
var ErrCrashed = errors.New("storetest: the process is dead")

// Faults is a Store that simulates the death of its process at any step: later calls have no effect. The Store behind
// it keeps earlier effects, unpublished drafts included. Kill releases the locks.
type Faults struct {
	store.Store

	// Fail, if not nil, is called before every step, open and list, and may make it fail without effect.
	Fail func(Step) error
	// Lose, if not nil, is called after every successful step and may return an error for it, as when a remote's
	// answer is lost.
	Lose func(Step) error

	mu     sync.Mutex
	steps  []Step
	dieAt  int  // the step that is the last, 1-based; 0 is none
	effect bool // the last step still has its effect
	dead   bool
	locks  []store.Unlocker
}

// Step is one call that changes something; for Fail also an open or a list.
type Step struct{ Op, Name string }

// CrashAt makes the n-th step (1-based) the last. With effect, it is done but returns an error.
func (f *Faults) CrashAt(n int, effect bool) { f.dieAt, f.effect = n, effect }

// Steps returns the steps so far.
func (f *Faults) Steps() []Step {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Step(nil), f.steps...)
}

// Crashed reports whether the step of CrashAt was reached.
func (f *Faults) Crashed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// Kill releases the locks, as the end of a process does.
func (f *Faults) Kill() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	var errs []error
	for _, lock := range f.locks {
		errs = append(errs, lock.Unlock())
	}
	return errors.Join(errs...)
}

// do performs a step, unless the process is dead.
func (f *Faults) do(op, name string, step func() error) error {
	f.mu.Lock()
	if f.dead {
		f.mu.Unlock()
		return ErrCrashed
	}
	f.steps = append(f.steps, Step{op, name})
	dies := len(f.steps) == f.dieAt
	f.dead = dies
	f.mu.Unlock()
	if dies && !f.effect {
		return ErrCrashed
	}
	if f.Fail != nil {
		if err := f.Fail(Step{op, name}); err != nil {
			return err
		}
	}
	err := step()
	if dies {
		return ErrCrashed
	}
	if err == nil && f.Lose != nil {
		err = f.Lose(Step{op, name})
	}
	return err
}

// look checks for a failure before a call that changes nothing.
func (f *Faults) look(op, name string) error {
	if f.Crashed() {
		return ErrCrashed
	}
	if f.Fail != nil {
		return f.Fail(Step{op, name})
	}
	return nil
}

// Put implements store.Store.
func (f *Faults) Put(ctx context.Context, name string, data []byte) error {
	return f.do("put", name, func() error { return f.Store.Put(ctx, name, data) })
}

// CreateIfAbsent implements store.Store.
func (f *Faults) CreateIfAbsent(ctx context.Context, name string, data []byte) error {
	return f.do("create-if-absent", name, func() error { return f.Store.CreateIfAbsent(ctx, name, data) })
}

// Delete implements store.Store.
func (f *Faults) Delete(ctx context.Context, name string) error {
	return f.do("delete", name, func() error { return f.Store.Delete(ctx, name) })
}

// Sweep implements store.Store.
func (f *Faults) Sweep(ctx context.Context, prefix string, ours func(name string) bool) error {
	return f.do("sweep", prefix, func() error { return f.Store.Sweep(ctx, prefix, ours) })
}

// Open implements store.Store.
func (f *Faults) Open(ctx context.Context, name string) (store.Object, error) {
	if err := f.look("open", name); err != nil {
		return nil, err
	}
	return f.Store.Open(ctx, name)
}

// List implements store.Store.
func (f *Faults) List(ctx context.Context, prefix string) iter.Seq2[store.Entry, error] {
	if err := f.look("list", prefix); err != nil {
		return func(yield func(store.Entry, error) bool) { yield(store.Entry{}, err) }
	}
	return f.Store.List(ctx, prefix)
}

// Folders implements store.Store.
func (f *Faults) Folders(ctx context.Context, folder string) iter.Seq2[string, error] {
	if err := f.look("folders", folder); err != nil {
		return func(yield func(string, error) bool) { yield("", err) }
	}
	return f.Store.Folders(ctx, folder)
}

// Lock implements store.Store.
func (f *Faults) Lock(ctx context.Context, name string, holder []byte) (store.Unlocker, error) {
	var lock store.Unlocker
	err := f.do("lock", name, func() (err error) {
		lock, err = f.Store.Lock(ctx, name, holder)
		return err
	})
	if lock != nil {
		f.mu.Lock()
		f.locks = append(f.locks, lock)
		f.mu.Unlock()
	}
	if err != nil {
		return nil, err
	}
	if lease, ok := lock.(store.Lease); ok {
		return faultyLease{faultyLock{f, lock}, lease}, nil
	}
	return faultyLock{f, lock}, nil
}

type faultyLock struct {
	f    *Faults
	lock store.Unlocker
}

func (l faultyLock) Unlock() error { return l.f.do("unlock", "", l.lock.Unlock) }

// faultyLease is a faultyLock that is a lease.
type faultyLease struct {
	faultyLock
	lease store.Lease
}

func (l faultyLease) Late() bool { return l.lease.Late() }
func (l faultyLease) Fenced()    { l.lease.Fenced() }

// Create implements store.Store.
func (f *Faults) Create(ctx context.Context, name string) (store.Draft, error) {
	var draft store.Draft
	err := f.do("create", name, func() (err error) {
		draft, err = f.Store.Create(ctx, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &faultyDraft{f, name, draft}, nil
}

type faultyDraft struct {
	f     *Faults
	name  string
	draft store.Draft
}

func (d *faultyDraft) Write(p []byte) (n int, err error) {
	err = d.f.do("write", d.name, func() (err error) {
		n, err = d.draft.Write(p)
		return err
	})
	return n, err
}

func (d *faultyDraft) Seal() error { return d.f.do("seal", d.name, d.draft.Seal) }

func (d *faultyDraft) Publish(ctx context.Context) error {
	return d.f.do("publish", d.name, func() error { return d.draft.Publish(ctx) })
}

func (d *faultyDraft) Discard() error { return d.f.do("discard", d.name, d.draft.Discard) }
