package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/bulkscan/bulkscan/store"
)

// An object server knows nothing of processes, so a Lock is a lease: an object that its holder rewrites five times in
// each lease. Every write is conditional: If-None-Match if the object does not exist, or If-Match with the ETag of the
// version that it replaces. So only one of several concurrent writers succeeds.
//
// Lock watches an object that it finds held. If the object is rewritten, its holder is alive, and Lock fails with a
// *HeldError, after at most a fifth of the lease. The holder counts as dead if two conditions hold. By the server's
// clock, the object is older than a lease (Date against Last-Modified). And it has been watched for longer than the
// holder needs to rewrite it. Then Lock takes it over. Clocks of two clients are never compared. If the server's clocks
// disagree with each other, only watching counts, for a complete lease.
//
// Guarantee. Two processes never both believe that they hold the lock, as long as neither is stopped for longer than a
// third of a lease between checking the clock and sending a request. A process that has not renewed its lease in time
// checks with the server before every attempt to change something, and learns that it has lost the lock. A request that
// it sent earlier may arrive at any later time, because the process was stopped (a suspended machine), the network was
// down, or the process has died. Its effect is never undone, since the next holder may have built on it. Instead the
// next holder learns of the possibility (Late) and makes the request harmless. It sweeps uploads, so that the server
// refuses to complete them. It creates records that a late request could create. A late Put is refused if the next
// holder has written the object since. Names that a late Delete could hit are never reused. The former holder gets
// ErrLockLost with the answer to its request.
//
// Unlock leaves the object with a text that marks it as free: deleting it could hit the lock of the next holder.

const (
	beatsInLease = 5
	// followed by the holder's mark, the number of this write, and the lease in milliseconds
	lockHeader = "bulkscan lock 1 "
	minLease   = time.Second
	maxLease   = time.Hour
	clockStep  = 2 * time.Second // Date and Last-Modified are whole seconds
	// Some servers store ETags apart from bytes. For a moment they return the ETag of a new object with the bytes of
	// the old one. An ETag that is the MD5 of the bytes belongs to them. Any other ETag (in an encrypted bucket) is
	// trusted once both have stayed the same for this time.
	tornTime = time.Second
)

// lockText is the content of the object.
type lockText struct {
	mark   string
	number int
	lease  time.Duration // 0: the lock is free
	late   bool          // the lock is free, and a request of its last holder may still arrive; the lease is written as -1
	holder []byte
}

func (l lockText) bytes() []byte {
	milliseconds := l.lease.Milliseconds()
	if l.late {
		milliseconds = -1
	}
	return append(fmt.Appendf(nil, "%s%s %d %d\n", lockHeader, l.mark, l.number, milliseconds), l.holder...)
}

// readLockText parses the content of the object. Any other text is the lock of a local folder that was copied here, and
// its holder is dead.
func readLockText(data []byte) lockText {
	line, holder, _ := bytes.Cut(data, []byte("\n"))
	var l lockText
	var milliseconds int64
	rest, ok := bytes.CutPrefix(line, []byte(lockHeader))
	if n, err := fmt.Sscanf(string(rest), "%s %d %d", &l.mark, &l.number, &milliseconds); !ok || n != 3 || err != nil {
		return lockText{lease: DefaultLease, holder: clipHolder(data)}
	}
	l.lease = max(0, min(time.Duration(milliseconds)*time.Millisecond, maxLease))
	l.late = milliseconds < 0
	l.holder = clipHolder(holder)
	return l
}

func clipHolder(holder []byte) []byte { return holder[:min(len(holder), store.MaxHolder)] }

// lease is a Lock that is held.
type lease struct {
	s    *Store
	name string
	key  string
	late atomic.Bool // see Late

	busy   chan struct{} // full during a renewal; guards the fields below
	text   lockText
	etag   string
	sure   time.Time // when the last request that the server confirmed was sent
	lost   bool
	freed  bool
	cancel context.CancelFunc
	ended  chan struct{}
}

// Late implements store.Lease.
func (l *lease) Late() bool { return l.late.Load() }

// Fenced implements store.Lease.
func (l *lease) Fenced() { l.late.Store(false) }

// Lock implements store.Store. A refusal takes up to a fifth of the holder's lease, a takeover from a dead holder
// somewhat more than a lease.
func (s *Store) Lock(ctx context.Context, name string, holder []byte) (store.Unlocker, error) {
	key, err := s.key(name)
	if err == nil && (!store.IsLock(name) || len(holder) > store.MaxHolder) {
		err = fmt.Errorf("%w: %q as a lock", store.ErrName, name)
	}
	var l *lease
	if err == nil {
		l = &lease{s: s, name: name, key: key, text: lockText{mark: newMark(), lease: s.cfg.Lease,
			holder: bytes.Clone(holder)}, busy: make(chan struct{}, 1), ended: make(chan struct{})}
		err = l.take(ctx)
	}
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		return nil, held
	}
	if err != nil {
		return nil, s.explain("lock", name, err)
	}
	beats, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.cancel = cancel
	s.mu.Lock()
	s.leases[l] = struct{}{}
	s.mu.Unlock()
	go l.beat(beats)
	return l, nil
}

// Held implements store.Store.
func (s *Store) Held(ctx context.Context, name string) error {
	key, err := s.key(name)
	if err == nil {
		_, err = (&lease{s: s, name: name, key: key}).watch(ctx)
	}
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		return held
	}
	if missing(err) {
		return nil
	}
	return s.explain("lock", name, err)
}

// take acquires the lock or returns a *HeldError.
func (l *lease) take(ctx context.Context) error {
	for r := l.s.contention(); ; {
		l.late.Store(true) // without a lock object, earlier holders are unknown
		err := l.write(ctx, "")
		if err == nil {
			return l.prove(ctx)
		}
		if !refused(err) {
			return err
		}
		before, err := l.watch(ctx)
		if err == nil {
			l.late.Store(before.text.lease > 0 || before.text.late)
			err = l.write(ctx, before.etag)
		}
		if err == nil {
			return l.prove(ctx)
		}
		if !refused(err) && !missing(err) {
			return err
		}
		// The object was deleted in the meantime, or another process was faster.
		if err := r.again(ctx, errContended); err != nil {
			return err
		}
	}
}

// write replaces the object with that ETag by the lock's text. With "", it creates the object.
func (l *lease) write(ctx context.Context, etag string) error {
	l.text.number++
	p := payloadOf(l.text.bytes())
	for r := l.s.contention(); ; {
		var o minio.PutObjectOptions
		if etag == "" {
			o.SetMatchETagExcept("*")
		} else {
			o.SetMatchETag(etag)
		}
		sent := time.Now()
		var written string
		err := l.s.try(ctx, len(p.data), func(ctx context.Context) (err error) {
			written, err = l.s.putOnce(ctx, l.key, p, o)
			return err
		})
		if err == nil {
			l.etag, l.sure = written, sent
			return nil
		}
		if !refused(err) {
			return err
		}
		// The object may be from an earlier attempt whose answer was lost, of this write or an earlier one.
		there, readErr := l.read(ctx)
		switch {
		case missing(readErr):
			return err
		case readErr != nil:
			return readErr
		case there.text.mark != l.text.mark:
			return err
		case there.text.number == l.text.number:
			l.etag, l.sure = there.etag, sent
			return nil
		}
		if err := r.again(ctx, errContended); err != nil {
			return err
		}
		etag = there.etag
	}
}

// prove tests once that the server refuses a write whose condition does not hold. If the server accepts it, locks are
// impossible, and this one is released.
func (l *lease) prove(ctx context.Context) (err error) {
	if l.s.conditional.Load() {
		return nil
	}
	defer func() {
		if err != nil {
			_ = l.free() // the first error says more, and the lease ends by itself
		}
	}()
	var none, other minio.PutObjectOptions
	none.SetMatchETagExcept("*")
	other.SetMatchETag("00000000000000000000000000000000")
	for _, o := range []minio.PutObjectOptions{none, other} {
		p := payloadOf(l.text.bytes())
		err := l.s.try(ctx, len(p.data), func(ctx context.Context) error {
			_, err := l.s.putOnce(ctx, l.key, p, o)
			return err
		})
		if err == nil {
			return &permanent{errors.New(
				"the server ignores conditions (If-None-Match, If-Match), so a second writer cannot be excluded; write to a local folder and copy it")}
		}
		if !refused(err) {
			return err
		}
	}
	l.s.conditional.Store(true)
	return nil
}

// lockState is a lock's object at one moment.
type lockState struct {
	etag  string
	text  lockText
	age   time.Duration // since the last write, by the server's clock
	whole bool          // the ETag belongs to the text
}

func (l *lease) read(ctx context.Context) (state lockState, err error) {
	err = l.s.try(ctx, 0, func(ctx context.Context) error {
		body, info, header, err := l.s.client.GetObject(ctx, l.s.cfg.Bucket, l.key, minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer body.Close()
		data, err := io.ReadAll(io.LimitReader(body, store.MaxHolder+1024))
		if err != nil {
			return err
		}
		state = lockState{etag: info.ETag, text: readLockText(data), whole: info.ETag == etagOf(data)}
		if date, err := http.ParseTime(header.Get("Date")); err == nil {
			state.age = date.Sub(info.LastModified)
		}
		return nil
	})
	return state, err
}

// watch waits until the lock can be taken, and returns the state to replace. The error is a *HeldError if its holder is
// alive, and that of a missing object if the object was deleted.
func (l *lease) watch(ctx context.Context) (lockState, error) {
	var seen lockState
	var since time.Time // the time since which the seen state is unchanged
	for {
		now, err := l.read(ctx)
		if err != nil {
			return lockState{}, err
		}
		if free := now.text.lease == 0; seen.etag == "" || free && now.etag != seen.etag {
			seen, since = now, time.Now()
		} else if now.etag != seen.etag {
			return lockState{}, l.held(ctx, now)
		}
		watched := time.Since(since)
		if now.text.lease == 0 && (now.whole || watched > tornTime) {
			return now, nil
		}
		beat := now.text.lease / beatsInLease
		if now.text.lease > 0 && watched > 2*beat && now.age > now.text.lease+clockStep || watched > now.text.lease+2*beat+
			tornTime {
			return now, nil
		}
		if err := sleep(ctx, min(max(beat/4, 10*time.Millisecond), time.Second)); err != nil {
			return lockState{}, err
		}
	}
}

// held returns a *HeldError for a lock that was just rewritten. The bytes may still be the old ones. So they are read
// until they match the ETag, or until tornTime has passed.
func (l *lease) held(ctx context.Context, now lockState) error {
	for seen := time.Now(); !now.whole && time.Since(seen) < tornTime; {
		err := sleep(ctx, tornTime/20)
		if err == nil {
			now, err = l.read(ctx)
		}
		if err != nil {
			return err
		}
	}
	return &store.HeldError{Name: l.name, Holder: now.text.holder}
}

// beat renews the lease until it is released or lost.
func (l *lease) beat(ctx context.Context) {
	defer close(l.ended)
	beats := time.NewTicker(l.s.cfg.Lease / beatsInLease)
	defer beats.Stop()
	for {
		select {
		case <-beats.C:
		case <-ctx.Done():
			return
		}
		// After any other error the next beat tries again. Changes call checkLocks first.
		once, cancel := context.WithTimeout(ctx, l.s.cfg.Lease)
		err := l.renew(once, 0)
		cancel()
		if errors.Is(err, store.ErrLockLost) {
			return
		}
	}
}

// renew renews the lease, unless the server confirmed it within the given time. The error is ErrLockLost if another
// process has it.
func (l *lease) renew(ctx context.Context, within time.Duration) error {
	select {
	case l.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.busy }()
	switch {
	case l.lost:
		return store.ErrLockLost
	case l.freed || elapsed(l.sure) < within:
		return nil
	}
	err := l.write(ctx, l.etag)
	if refused(err) || missing(err) {
		l.lost = true
		return store.ErrLockLost
	}
	return err
}

// checkLocks checks that the Store still holds all its locks, so that it may change something.
func (s *Store) checkLocks(ctx context.Context) error {
	s.mu.Lock()
	held := make([]*lease, 0, len(s.leases))
	for l := range s.leases {
		held = append(held, l)
	}
	s.mu.Unlock()
	for _, l := range held {
		if err := l.renew(ctx, 2*s.cfg.Lease/3); err != nil {
			return err
		}
	}
	return nil
}

// locked reports whether the Store holds a lock.
func (s *Store) locked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.leases) > 0
}

// Unlock implements store.Unlocker.
func (l *lease) Unlock() error {
	l.cancel()
	<-l.ended
	l.busy <- struct{}{}
	defer func() { <-l.busy }()
	if l.freed {
		return nil
	}
	l.freed = true
	l.s.mu.Lock()
	delete(l.s.leases, l)
	l.s.mu.Unlock()
	err := store.ErrLockLost
	if !l.lost {
		err = l.free()
	}
	return l.s.explain("unlock", l.name, err)
}

// free marks the lock as free.
func (l *lease) free() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), l.s.cfg.discardTime, errLimit)
	defer cancel()
	sure := elapsed(l.sure) < l.text.lease
	l.text.lease, l.text.late = 0, l.late.Load() || l.s.unanswered.Load()
	err := l.write(ctx, l.etag)
	if refused(err) || missing(err) {
		if sure {
			return nil // the lease was valid, so an earlier attempt, whose answer was lost, released it
		}
		return store.ErrLockLost
	}
	return err
}
