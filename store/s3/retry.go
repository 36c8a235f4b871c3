package s3

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/bulkscan/bulkscan/store"
)

// This file says which requests are repeated, for how long, and how errors are explained.

const (
	firstPause = 100 * time.Millisecond // before the second try; doubled for each further one
	maxPause   = 10 * time.Second
	slowest    = 64 << 10 // minimum rate of a transfer in bytes per second
)

// retries bounds the time for retries of one call, counted from the first failure. If the server has never answered, it
// counts from the beginning of the first attempt.
type retries struct {
	s     *Store
	since time.Time // start of the time; zero if there was no failure since the last progress
	spent int64     // keys.spent at that time
	pause time.Duration
	tries int
	moved bool // another region was tried
}

func (s *Store) newRetries() *retries {
	r := &retries{s: s}
	if !s.reached.Load() {
		r.begin()
	}
	return r
}

// contention returns the retries of a write that may lose to other writers. The requests of an attempt have retries of
// their own, and an attempt may watch a lock for long. So the time counts from the first refusal.
func (s *Store) contention() *retries { return &retries{s: s} }

// begin starts the time.
func (r *retries) begin() { r.since, r.spent = time.Now(), r.s.keys.spent.Load() }

// elapsed returns the time of the retries, without the time for finding credentials: a credential_process may wait for
// input.
func (r *retries) elapsed() time.Duration {
	return time.Since(r.since) - time.Duration(r.s.keys.spent.Load()-r.spent)
}

// answered records that the server has answered.
func (s *Store) answered() {
	s.reached.Store(true)
	s.silent.Store(false)
}

// progress resets the time after a success.
func (r *retries) progress() {
	r.s.answered()
	r.since, r.pause = time.Time{}, 0
}

// again waits before the next attempt, or returns the final error.
func (r *retries) again(ctx context.Context, err error) error {
	if ctx.Err() != nil && !limited(ctx) {
		return ctx.Err()
	}
	answer := answerOf(err)
	if answer.StatusCode != 0 {
		r.s.answered()
	}
	if !transient(err) && !r.redirected(answer) {
		return err
	}
	if r.tries++; r.since.IsZero() {
		r.begin()
	}
	patience := r.s.cfg.Patience
	if !r.s.reached.Load() {
		patience = min(patience, r.s.cfg.firstPatience) // report a wrong address soon
	}
	// Half of each pause is random, so that processes that failed together do not retry together.
	r.pause = min(max(firstPause, 2*r.pause), maxPause)
	pause := r.pause/2 + rand.N(r.pause/2)
	if after := r.elapsed(); ctx.Err() != nil || after+pause > patience {
		return &givenUp{err, r.tries, after}
	}
	stopped := sleep(ctx, pause)
	if stopped != nil && limited(ctx) {
		return &givenUp{err, r.tries, r.elapsed()}
	}
	return stopped
}

// errLimit is the cause of a context that limits patience. Its end gives up, with the error of the last attempt.
var errLimit = errors.New("the time for cleaning up is over")

func limited(ctx context.Context) bool { return context.Cause(ctx) == errLimit }

// sleep waits for d or until the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// redirected reports, once per call, that the server has named the right region, which the client now knows.
func (r *retries) redirected(answer minio.ErrorResponse) bool {
	if r.moved || r.s.cfg.Region != "" || answer.Region == "" {
		return false
	}
	r.moved = answer.Code == minio.AuthorizationHeaderMalformed || answer.Code == minio.InvalidRegion
	return r.moved
}

// try calls ask until it succeeds or fails for good, or until patience or the context ends. Each attempt has time for
// size bytes.
func (s *Store) try(ctx context.Context, size int, ask func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for r := s.newRetries(); ; {
		once, cancel := context.WithTimeout(ctx, s.timeFor(size))
		err := ask(once)
		cancel()
		if err == nil {
			s.answered()
			return nil
		}
		if err := r.again(ctx, err); err != nil {
			return err
		}
	}
}

// change is try for requests that change an object. Retries may last longer than a lease, so the locks are checked
// before each attempt.
func (s *Store) change(ctx context.Context, size int, ask func(ctx context.Context) error) error {
	return s.try(ctx, size, func(ctx context.Context) error {
		if err := s.checkLocks(ctx); err != nil {
			return err
		}
		err := ask(ctx)
		if err != nil && (answerOf(err).StatusCode == 0 || transient(err)) {
			s.unanswered.Store(true) // the request may take effect at any later time
		}
		return err
	})
}

// timeFor returns the time for one attempt that transfers size bytes. For a server that has never answered, the total
// patience bounds it: the server may accept connections and never answer.
func (s *Store) timeFor(size int) time.Duration {
	enough := 2*s.cfg.Stall + time.Duration(size)*time.Second/slowest
	if !s.reached.Load() {
		enough = min(enough, s.cfg.firstPatience)
	}
	return enough
}

// givenUp is the last error after patience has ended.
type givenUp struct {
	err   error // of the last attempt
	tries int
	after time.Duration
}

func (e *givenUp) Error() string   { return e.err.Error() }
func (e *givenUp) Unwrap() []error { return []error{e.err, store.ErrUnavailable} }

// answerOf returns the server's error response, or zero for none.
func answerOf(err error) minio.ErrorResponse {
	answer, _ := errors.AsType[minio.ErrorResponse](err)
	return answer
}

// transient reports whether a retry may help. A refusal is final. Nearly everything else, from a connection reset to a
// truncated answer, may be temporary.
func transient(err error) bool {
	answer := answerOf(err)
	switch answer.Code {
	case "RequestTimeout", "RequestTimeoutException", "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling",
		"ThrottlingException", "RequestLimitExceeded", "BandwidthLimitExceeded", "TooManyRequests",
		"OperationAborted", "ConditionalRequestConflict", // concurrent requests; the server asks for a retry
		"BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch", // corrupted in transit
		minio.InternalError, "ServiceUnavailable": // 5xx, also if reported in a body with status 200
		return true
	case minio.NotImplemented:
		return false
	}
	switch status := answer.StatusCode; {
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status == 499:
		return true
	case status == http.StatusNotImplemented, status == http.StatusHTTPVersionNotSupported:
		return false
	case status >= 500:
		return true
	case status != 0, answer.Code != "":
		return false
	}
	var fatal *permanent
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &fatal), errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid),
		errors.Is(err, store.ErrLockLost), errors.Is(err, store.ErrChanged):
		return false
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return false
	}
	return true
}

// permanent is an error of this package that no retry can cure.
type permanent struct{ error }

func (e *permanent) Unwrap() error { return e.error }

// refused reports that a condition did not hold.
func refused(err error) bool {
	answer := answerOf(err)
	return answer.Code == minio.PreconditionFailed || answer.StatusCode == http.StatusPreconditionFailed
}

// missing reports that there is no such object, or no such upload.
func missing(err error) bool {
	switch answerOf(err).Code {
	case minio.NoSuchKey, minio.NoSuchUpload, "NotFound", "NoSuchVersion":
		return true
	}
	return false
}

// aborted reports that there is no such upload.
func aborted(err error) bool { return answerOf(err).Code == minio.NoSuchUpload }

var errAborted = &permanent{errors.New(
	"its upload was aborted, by another process that writes the same or by a rule of the bucket")}

// failure is an error with the operation, the place, the cause, and a remedy if one is known.
type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// Is maps the server's refusals to errors of the system.
func (f *failure) Is(target error) bool {
	switch status := answerOf(f.err).StatusCode; target {
	case fs.ErrPermission:
		return status == http.StatusForbidden || status == http.StatusUnauthorized
	case errors.ErrUnsupported:
		return status == http.StatusNotImplemented || status == http.StatusMethodNotAllowed
	}
	return false
}

// explain returns the error of a method as a failure; nil stays nil.
func (s *Store) explain(verb, name string, err error) error {
	if err == nil {
		return nil
	}
	switch {
	case aborted(err):
		err = errAborted
	case missing(err):
		err = store.ErrNotExist
	}
	return &failure{fmt.Sprintf("cannot %s s3://%s/%s%s: %s", verb, s.cfg.Bucket, s.root, name, s.why(err)), err}
}

// why returns a cause, and a remedy if one is known. Text of the server is bounded here and escaped when shown.
func (s *Store) why(err error) string {
	text := clip(err.Error())
	answer := answerOf(err)
	if answer.StatusCode != 0 || answer.Code != "" {
		text = strings.TrimSpace(fmt.Sprintf("%s (%s, status %d)", text, clip(answer.Code), answer.StatusCode))
	}
	if gave, ok := errors.AsType[*givenUp](err); ok {
		text += fmt.Sprintf("; given up after %d tries in %v", gave.tries, gave.after.Round(100*time.Millisecond))
		if answer.StatusCode == 0 {
			text += fmt.Sprintf("; the server was %s (AWS_ENDPOINT_URL_S3, or endpoint_url of the profile, sets another)",
				s.cfg.server())
		}
	}
	if remedy := s.remedy(answer); remedy != "" {
		text += "; " + remedy
	}
	return text
}

func (s *Store) remedy(answer minio.ErrorResponse) string {
	switch answer.Code {
	case minio.NoSuchBucket:
		return fmt.Sprintf("create the bucket at %s, or set AWS_ENDPOINT_URL_S3 to the server that has it", s.cfg.server())
	case minio.InvalidAccessKeyID, minio.SignatureDoesNotMatch:
		return "look at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or at AWS_PROFILE"
	case "ExpiredToken", "ExpiredTokenException", "InvalidToken":
		return "the session token is no longer good: get new credentials"
	case "RequestTimeTooSkewed":
		return "the clock of this machine is wrong"
	case minio.AuthorizationHeaderMalformed, minio.InvalidRegion, "PermanentRedirect",
		"IllegalLocationConstraintException":
		if answer.Region != "" {
			return "set AWS_REGION=" + clip(answer.Region)
		}
		return "set AWS_REGION to the bucket's region"
	}
	switch answer.StatusCode {
	case http.StatusForbidden, http.StatusUnauthorized:
		if s.keys.anonymous() {
			return "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
		}
		return "writing needs the rights s3:PutObject, s3:GetObject, s3:DeleteObject, s3:AbortMultipartUpload on its objects, and s3:ListBucket, s3:ListBucketMultipartUploads on the bucket; reading needs s3:GetObject and s3:ListBucket"
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect:
		return "set AWS_REGION to the bucket's region"
	case http.StatusNotImplemented:
		return "the server does not support this S3 request"
	}
	return ""
}

// clip bounds text from outside.
func clip(text string) string {
	const most = 300
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
