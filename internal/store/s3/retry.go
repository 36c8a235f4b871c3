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

	"github.com/bulkscan/bulkscan/internal/store"
)

// Which answers are asked for again, for how long, and how what went wrong is told.

const (
	firstPause = 100 * time.Millisecond // before the second try; doubled for each further one
	maxPause   = 10 * time.Second
	slowest    = 64 << 10 // bytes a second that a transfer makes at least
)

// retries bounds the tries of one call in time, counted from the first that failed; where the server has never answered,
// from the beginning of the first.
type retries struct {
	s     *Store
	since time.Time // from which on time counts; zero: there was no failure after the last progress
	spent int64     // what keys had spent by then
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

// begin lets time count from now on.
func (r *retries) begin() { r.since, r.spent = time.Now(), r.s.keys.spent.Load() }

// elapsed is how long the call has been tried. Finding out who asks is no matter of the server: at a prompt of a
// credential_process somebody may have to type.
func (r *retries) elapsed() time.Duration {
	return time.Since(r.since) - time.Duration(r.s.keys.spent.Load()-r.spent)
}

// heard notes that the server has answered.
func (s *Store) heard() {
	s.reached.Store(true)
	s.silent.Store(false)
}

// progress forgets the failures so far.
func (r *retries) progress() {
	r.s.heard()
	r.since, r.pause = time.Time{}, 0
}

// again waits before the next try, or returns the error that ends the trying.
func (r *retries) again(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	answer := answerOf(err)
	if answer.StatusCode != 0 {
		r.s.heard()
	}
	if !transient(err) && !r.elsewhere(answer) {
		return err
	}
	if r.tries++; r.since.IsZero() {
		r.begin()
	}
	patience := r.s.cfg.Patience
	if !r.s.reached.Load() {
		patience = min(patience, r.s.cfg.firstPatience) // a wrong address should be told soon
	}
	// Half of each pause is left to chance, so that many who failed together do not come back together.
	r.pause = min(max(firstPause, 2*r.pause), maxPause)
	pause := r.pause/2 + rand.N(r.pause/2)
	if after := r.elapsed(); after+pause > patience {
		return &givenUp{err, r.tries, after}
	}
	return sleep(ctx, pause)
}

// sleep waits, but not for longer than the context lasts.
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

// elsewhere reports, once, that the server has named the region to ask in, which the client then knows.
func (r *retries) elsewhere(answer minio.ErrorResponse) bool {
	if r.moved || r.s.cfg.Region != "" || answer.Region == "" {
		return false
	}
	r.moved = answer.Code == minio.AuthorizationHeaderMalformed || answer.Code == minio.InvalidRegion
	return r.moved
}

// try calls ask until it succeeds, fails for good, or patience or the context ends. Each try has time for size bytes.
func (s *Store) try(ctx context.Context, size int, ask func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for r := s.newRetries(); ; {
		once, cancel := context.WithTimeout(ctx, s.timeFor(size))
		err := ask(once)
		cancel()
		if err == nil {
			s.heard()
			return nil
		}
		if err := r.again(ctx, err); err != nil {
			return err
		}
	}
}

// change is try for what changes an object that has a name. Trying may go on for longer than a lease, so the lock is looked
// at before each try.
func (s *Store) change(ctx context.Context, size int, ask func(ctx context.Context) error) error {
	return s.try(ctx, size, func(ctx context.Context) error {
		if err := s.stillOurs(ctx); err != nil {
			return err
		}
		err := ask(ctx)
		if err != nil && (answerOf(err).StatusCode == 0 || transient(err)) {
			s.unheard.Store(true) // it may have its effect at any later time
		}
		return err
	})
}

// timeFor is how long one try may take that transfers so many bytes. A server that has never answered has no more than
// is waited for it in all: it may be one that takes connections and says nothing.
func (s *Store) timeFor(size int) time.Duration {
	enough := 2*s.cfg.Stall + time.Duration(size)*time.Second/slowest
	if !s.reached.Load() {
		enough = min(enough, s.cfg.firstPatience)
	}
	return enough
}

// givenUp says that patience has ended.
type givenUp struct {
	err   error // of the last try
	tries int
	after time.Duration
}

func (e *givenUp) Error() string   { return e.err.Error() }
func (e *givenUp) Unwrap() []error { return []error{e.err, store.ErrUnavailable} }

// answerOf is what the server said; zero where it said nothing.
func answerOf(err error) minio.ErrorResponse {
	answer, _ := errors.AsType[minio.ErrorResponse](err)
	return answer
}

// transient reports whether asking again may help. What the server has refused it will refuse again; all but everything
// else, from a reset to an answer that breaks off, may be gone the next time.
func transient(err error) bool {
	answer := answerOf(err)
	switch answer.Code {
	case "RequestTimeout", "RequestTimeoutException", "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "RequestLimitExceeded", "BandwidthLimitExceeded", "TooManyRequests",
		"OperationAborted", "ConditionalRequestConflict", // two at once; the server asks to try again
		"BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch", // changed on the way
		minio.InternalError, "ServiceUnavailable": // 5xx, but for those that are told behind a 200
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

// permanent is an error of our own that no further try will cure.
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

var errAborted = &permanent{errors.New("its upload was aborted, by another process that writes the same or by a rule of the bucket")}

// failure is an error that says what could not be done where, why, and what may help.
type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// Is lets those who ask for errors of the system find what they mean.
func (f *failure) Is(target error) bool {
	switch status := answerOf(f.err).StatusCode; target {
	case fs.ErrPermission:
		return status == http.StatusForbidden || status == http.StatusUnauthorized
	case errors.ErrUnsupported:
		return status == http.StatusNotImplemented || status == http.StatusMethodNotAllowed
	}
	return false
}

// explain makes the error that a method returns; nil stays nil.
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

// why tells a cause, and a remedy where one is known. What a server says is its own: bounded here, escaped where shown.
func (s *Store) why(err error) string {
	text := clip(err.Error())
	answer := answerOf(err)
	if answer.StatusCode != 0 || answer.Code != "" {
		text = strings.TrimSpace(fmt.Sprintf("%s (%s, status %d)", text, clip(answer.Code), answer.StatusCode))
	}
	if gave, ok := errors.AsType[*givenUp](err); ok {
		text += fmt.Sprintf("; given up after %d tries in %v", gave.tries, gave.after.Round(100*time.Millisecond))
		if answer.StatusCode == 0 {
			text += fmt.Sprintf("; asked was %s (AWS_ENDPOINT_URL_S3, or endpoint_url of the profile, says which server)", s.cfg.server())
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
	case minio.AuthorizationHeaderMalformed, minio.InvalidRegion, "PermanentRedirect", "IllegalLocationConstraintException":
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
		return "the server does not know this request of S3"
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
