package nightly

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/store"
)

// The night's list is copied into the dataset before its scan begins. So a killed scan can continue even if the list or
// the machine was replaced meanwhile.

// ListOptions say where the list is, and how long it must be.
type ListOptions struct {
	Source string // a path, s3://BUCKET/KEY, or https://…
	// Least is the share of the last published night's entries that the list must have.
	Least float64
	// Open opens the place of a list in an object store.
	Open func(place string) (store.Store, error)
	// Client fetches a list by https; nil is http.DefaultClient.
	Client *http.Client
	// Count reads a list and returns its entries. Its ListError says why a list is in doubt.
	Count func(ctx context.Context, path string) (int64, error)
}

const (
	maxList      = 16 << 30 // bytes
	fetchTime    = 30 * time.Minute
	fetchRetries = 4
	fetchPause   = 10 * time.Second // doubled with each retry
)

// ListError says that the list is not one to scan.
type ListError struct{ What string }

func (e *ListError) Error() string { return e.What }

const unlessMeant = "; nothing is scanned. If that is meant, repeat with --accept-list"

// takeList returns the path of the night's list in a folder. The first run of a night takes it from its source and
// keeps a copy.
func (o *Options) takeList(ctx context.Context, n *Night, folder string) (path string, err error) {
	if n.List != nil {
		path := filepath.Join(folder, n.List.Name)
		sum, err := o.download(ctx, o.Store, folderOf(n.Date)+n.List.Name, path)
		if err == nil && sum != n.List.SHA256 {
			err = errors.New("its bytes are not those of its record")
		}
		if err == nil {
			return path, nil
		}
		if ctx.Err() != nil {
			return "", err
		}
		// The scan can continue with the same list.
		o.Log.Warn("the copy of the night's list cannot be read; it is taken anew", "error", err)
	}
	name := listName(o.List.Source)
	path = filepath.Join(folder, name)
	sum, err := o.fetchList(ctx, path)
	if err != nil {
		return "", fmt.Errorf("cannot take the list %s: %w", shown(o.List.Source), cmp.Or(ctx.Err(), err))
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if o.vouched {
		n.DoubtedAfter = ""
	}
	list := &List{Source: shown(o.List.Source), Name: name, Bytes: info.Size(), SHA256: sum}
	list.Entries, err = o.List.Count(ctx, path)
	if doubt, ok := errors.AsType[*ListError](err); ok {
		return "", &ListError{fmt.Sprintf("the list %s: %s%s", list.Source, doubt.What, unlessMeant)}
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the list %s: %w", shown(o.List.Source), err)
	}
	if err := o.checkList(ctx, list); err != nil {
		return "", err
	}
	if err := o.keepList(ctx, path, folderOf(n.Date)+name); err != nil {
		return "", err
	}
	n.List = list
	return path, n.write(ctx, o.Store)
}

// checkList compares the list with that of the last published night.
func (o *Options) checkList(ctx context.Context, list *List) error {
	if list.Entries == 0 {
		return &ListError{fmt.Sprintf("the list %s has no site; nothing is scanned", list.Source)}
	}
	nights, err := Nights(ctx, o.Store, recent)
	if err != nil {
		return err
	}
	for i := len(nights) - 1; i >= 0; i-- {
		last := nights[i]
		if last.State != Published || last.List == nil {
			continue
		}
		if float64(list.Entries) < o.List.Least*float64(last.List.Entries) {
			return &ListError{fmt.Sprintf("the list %s has %d sites, less than %v of the %d of %s%s",
				list.Source, list.Entries, o.List.Least, last.List.Entries, last.Date, unlessMeant)}
		}
		break
	}
	return nil
}

// fetchList copies the list to a file and returns its SHA-256. It retries after errors that a network may cause.
func (o *Options) fetchList(ctx context.Context, to string) (sum string, err error) {
	source := o.List.Source
	switch scheme, _, ok := strings.Cut(source, "://"); {
	case !ok:
		file, err := inputs.OpenFile(ctx, source)
		if err != nil {
			return "", err
		}
		defer file.Close()
		return copyTo(to, file)
	case scheme == "s3":
		place, err := o.List.Open(source[:strings.LastIndexByte(source, '/')])
		if err != nil {
			return "", err
		}
		return o.download(ctx, place, path.Base(source), to)
	}
	err = repeat(ctx, fetchRetries, fetchPause, func(pause time.Duration) (again bool, err error) {
		sum, err = o.get(ctx, to)
		_, wrong := errors.AsType[*ClockError](err)
		if again = err != nil && !wrong && ctx.Err() == nil && pause > 0; again {
			o.Log.Warn("cannot fetch the list; trying again", "error", err, "in", pause)
		}
		return again, err
	})
	return sum, err
}

// get fetches the list by https.
func (o *Options) get(ctx context.Context, to string) (sum string, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.List.Source, nil)
	if err != nil {
		return "", errors.New("not a valid URL")
	}
	request.Header.Set("Accept-Encoding", "identity") // a .gz file stays one
	response, err := send(o.List.Client, request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	switch {
	case response.Request.URL.Scheme != "https":
		return "", errors.New("it redirects to another scheme than https")
	case response.StatusCode != http.StatusOK:
		return "", fmt.Errorf("status %d", response.StatusCode)
	}
	if err := o.checkClock(response.Header); err != nil {
		return "", err
	}
	return copyTo(to, response.Body) // a body that is shorter than announced is an error of reading
}

// ClockError says that this machine's clock and the server of the list disagree.
type ClockError struct{ Here, There time.Time }

func (e *ClockError) Error() string {
	return fmt.Sprintf(
		"its server says that it is %s, and the clock of this machine %s; nothing is scanned or pruned under a wrong date. Correct the clock; or if it is right, repeat with --date %s",
		e.There.Format(time.RFC3339), e.Here.Format(time.RFC3339), e.Here.Format(time.DateOnly))
}

// maxSkew is how far a clock may be from a server's. A clock that shows local time as UTC is never further off.
const maxSkew = 14 * time.Hour

// checkClock compares the clock that dates the night with the time of an answer (RFC 9110 §6.6.1) plus the Age that a
// cache adds (RFC 9111 §5.1). An answer without a time proves nothing, and a given date needs no proof.
func (o *Options) checkClock(answer http.Header) error {
	there, err := http.ParseTime(answer.Get("Date"))
	if err != nil || o.Date != "" {
		return nil
	}
	if age, err := strconv.ParseUint(answer.Get("Age"), 10, 31); err == nil {
		there = there.Add(time.Duration(age) * time.Second)
	}
	if now := o.now(); now.Sub(there).Abs() > maxSkew {
		return &ClockError{Here: now, There: there}
	}
	o.vouched = true
	return nil
}

// download copies an object to a file.
func (o *Options) download(ctx context.Context, st store.Store, name, to string) (sum string, err error) {
	object, err := st.Open(ctx, name)
	if err != nil {
		return "", err
	}
	defer object.Close()
	return copyTo(to, io.NewSectionReader(object, 0, object.Size()))
}

// copyTo writes a file of at most maxList bytes.
func copyTo(to string, from io.Reader) (sum string, err error) {
	file, err := os.Create(to)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, hash), io.LimitReader(from, maxList+1))
	if n > maxList {
		err = errors.Join(err, fmt.Errorf("it has more than %d bytes", int64(maxList)))
	}
	return hex.EncodeToString(hash.Sum(nil)), errors.Join(err, file.Close())
}

// keepList copies a file into the dataset.
func (o *Options) keepList(ctx context.Context, from, name string) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	draft, err := o.Store.Create(ctx, name)
	if err != nil {
		return err
	}
	if _, err = io.Copy(draft, file); err == nil {
		err = draft.Seal()
	}
	if err == nil {
		err = draft.Publish(ctx)
	}
	return errors.Join(err, draft.Discard())
}

// listName is the name of the copy of a list: `list`, and the endings of the source that tell formats.
func listName(source string) string {
	if parsed, err := url.Parse(source); err == nil && strings.Contains(source, "://") {
		source = parsed.Path
	}
	base := filepath.Base(source)
	for i := 0; i < len(base); i++ {
		if c := base[i]; !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("._-", c) >= 0) {
			base = base[:i] + "_" + base[i+1:]
		}
	}
	return "list-" + base[max(0, len(base)-100):]
}

// shown is a source without its possible secrets: a user, a password, a query.
func shown(source string) string {
	parsed, err := url.Parse(source)
	if err != nil || parsed.Scheme == "" || parsed.Host == "" {
		return source
	}
	return parsed.Scheme + "://" + parsed.Host + parsed.Path
}
