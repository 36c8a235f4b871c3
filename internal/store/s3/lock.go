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

	"github.com/bulkscan/bulkscan/internal/store"
)

// A server of objects knows nothing of processes, so a Lock is a lease: an object that its holder writes anew five times
// in each lease. Every write of it is conditional (If-None-Match when there is none, If-Match with the ETag of the one it
// replaces otherwise), so that of several who would take it one succeeds.
//
// Who finds it held watches it. As soon as it is written anew its holder lives, and Lock fails with a *HeldError: after a
// fifth of the lease at the latest. When it has not been written anew for a lease, by the server's clock (its Date against
// the object's Last-Modified) and while it was being watched for longer than the holder takes to write it, its holder is
// dead, and it is taken over. No clock of a client's is compared with another's. Where the server's clocks disagree with
// each other, the watching alone decides, after a whole lease.
//
// What is promised. Two processes never both believe that they hold the lock, as long as neither stands still between
// looking at the clock and sending a request for longer than a third of it: whoever has not renewed it in time asks the
// server before it changes anything, at each try, and learns there that it has lost. What it had sent before may arrive at
// any later time: when the process was stopped right there (a suspended machine), when the line was, or when the process
// is dead. Nothing is taken back, since the next holder may have seen it and built on it. Instead the next holder is told
// (Late), and makes it harmless: an upload is swept, so that the server refuses to complete it; a record is refused where
// the next holder has created one of that name first; a Put is refused where the next holder has put something since; and
// what a late Delete may hit is given no second time. Who has lost the lock is told so, once its request is answered.
//
// Unlock leaves the object, with a word that says that it is free: to delete it could hit the lock of somebody who has
// just taken it.

const (
	beatsInLease = 5
	lockHeader   = "bulkscan lock 1 " // then the holder's mark, the number of this writing, and the lease in milliseconds
	minLease     = time.Second
	maxLease     = time.Hour
	clockStep    = 2 * time.Second // Date and Last-Modified are whole seconds
	// Some servers keep ETags apart from bytes, and answer for a moment with the ETag of a new object and the bytes of the
	// one before. An ETag that is the MD5 of the bytes is theirs; another one (of an encrypted bucket) is believed when
	// both have stayed for so long.
	tornTime = time.Second
)

// lockText is what stands in the object.
type lockText struct {
	mark   string
	number int
	lease  time.Duration // 0: it is free
	late   bool          // it is free, and a request of who held it may still be on its way: the lease is written as -1
	holder []byte
}

func (l lockText) bytes() []byte {
	milliseconds := l.lease.Milliseconds()
	if l.late {
		milliseconds = -1
	}
	return append(fmt.Appendf(nil, "%s%s %d %d\n", lockHeader, l.mark, l.number, milliseconds), l.holder...)
}

// readLockText reads what stands in the object. Other text is the lock of a local folder that was copied here: it has a
// holder, who is dead.
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

	busy   chan struct{} // full through each renewal, which changes what follows
	text   lockText
	etag   string
	sure   time.Time // when the request was sent by which the server has last confirmed it
	lost   bool
	freed  bool
	cancel context.CancelFunc
	ended  chan struct{}
}

// Late implements store.Lease.
func (l *lease) Late() bool { return l.late.Load() }

// Fenced implements store.Lease.
func (l *lease) Fenced() { l.late.Store(false) }

// Lock implements store.Store. It takes a fifth of the holder's lease to be refused, and somewhat more than a lease to
// take over from a dead one.
func (s *Store) Lock(ctx context.Context, name string, holder []byte) (store.Unlocker, error) {
	key, err := s.key(name)
	if err == nil && (!store.IsLock(name) || len(holder) > store.MaxHolder) {
		err = fmt.Errorf("%w: %q as a lock", store.ErrName, name)
	}
	var l *lease
	if err == nil {
		l = &lease{s: s, name: name, key: key, text: lockText{mark: newMark(), lease: s.cfg.Lease, holder: bytes.Clone(holder)}, busy: make(chan struct{}, 1), ended: make(chan struct{})}
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

// take gets the lock, or a *HeldError.
func (l *lease) take(ctx context.Context) error {
	for r := l.s.newRetries(); ; {
		l.late.Store(true) // without a lock nobody knows who had one
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
		// It was deleted meanwhile, or somebody else was faster.
		if err := r.again(ctx, errContended); err != nil {
			return err
		}
	}
}

// write puts the lock's text in the place of the object with that ETag, or of none.
func (l *lease) write(ctx context.Context, etag string) error {
	l.text.number++
	p := payloadOf(l.text.bytes())
	for r := l.s.newRetries(); ; {
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
		// What is there may be of a try of ours whose answer was lost: of this writing, or of an earlier one.
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

// prove makes sure, once, that the server refuses where a condition does not hold: otherwise there is no lock, and it is
// given back.
func (l *lease) prove(ctx context.Context) (err error) {
	if l.s.conditional.Load() {
		return nil
	}
	defer func() {
		if err != nil {
			_ = l.free() // of two failures, the first tells more; and the lease ends
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
			return &permanent{errors.New("the server ignores conditions (If-None-Match, If-Match), so that nothing keeps two writers apart there; write to a local folder and copy it")}
		}
		if !refused(err) {
			return err
		}
	}
	l.s.conditional.Store(true)
	return nil
}

// lockState is a lock's object as it was at one moment.
type lockState struct {
	etag  string
	text  lockText
	age   time.Duration // since it was written, by the server's clock
	whole bool          // the ETag is that of the text
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

// watch waits until the lock can be taken, and returns the object that is to be replaced. Where its holder
// lives, the error is a *HeldError; where there is none any more, it is that of a missing object.
func (l *lease) watch(ctx context.Context) (lockState, error) {
	var seen lockState
	var since time.Time // seen is so
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
		if now.text.lease > 0 && watched > 2*beat && now.age > now.text.lease+clockStep || watched > now.text.lease+2*beat+tornTime {
			return now, nil
		}
		if err := sleep(ctx, min(max(beat/4, 10*time.Millisecond), time.Second)); err != nil {
			return lockState{}, err
		}
	}
}

// held says who holds a lock that was just written anew. The bytes may still be those of the one before: they are read until
// they are the ETag's, or have had the time to become so.
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

// beat renews the lease until it is given back or lost.
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
		// Whatever else fails, the next beat tries again; and who wants to write asks before.
		once, cancel := context.WithTimeout(ctx, l.s.cfg.Lease)
		err := l.renew(once, 0)
		cancel()
		if errors.Is(err, store.ErrLockLost) {
			return
		}
	}
}

// renew asks the server whether the lease is still ours, unless it has said so within the time given.
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

// stillOurs makes sure that no lock of the Store has passed to somebody else, so that it may change something.
func (s *Store) stillOurs(ctx context.Context) error {
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

// free writes that nobody holds the lock.
func (l *lease) free() error {
	ctx, cancel := context.WithTimeout(context.Background(), l.s.cfg.discardTime)
	defer cancel()
	sure := elapsed(l.sure) < l.text.lease
	l.text.lease, l.text.late = 0, l.late.Load() || l.s.unheard.Load()
	err := l.write(ctx, l.etag)
	if refused(err) || missing(err) {
		if sure {
			return nil // nobody could take it before a try of ours, whose answer was lost, gave it back
		}
		return store.ErrLockLost
	}
	return err
}
