package s3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

// openScan opens a small dataset.
func openScan(s *Store, changes ...func(*sink.Options)) (*sink.Writer, error) {
	o := sink.Options{ScanID: "s", Date: "2026-11-21", PartRows: 4, Tables: []string{schema.Sites, schema.Verdicts}}
	for _, change := range changes {
		change(&o)
	}
	return sink.Open(context.Background(), s, o)
}

// scanned writes a small dataset, or completes it.
func scanned(s *Store) error {
	w, err := openScan(s)
	if err != nil {
		return err
	}
	return addSites(s, w)
}

// addSites writes the missing sites, completes the scan and lists it.
func addSites(s *Store, w *sink.Writer) (err error) {
	ctx := context.Background()
	defer func() {
		if err != nil {
			_ = w.Abort() // the first error says more
		}
	}()
	if err := addMissing(w); err != nil {
		return err
	}
	if err := errors.Join(w.Complete(ctx), index.Update(ctx, s)); err != nil {
		return err
	}
	return w.Close(ctx)
}

// addMissing writes the missing sites; for a share only its own sites. Every other host has answered.
func addMissing(w *sink.Writer) error {
	i, n := w.Share()
	for seq := range uint64(10) {
		if w.Done(seq) || n > 0 && int(seq)%n != i {
			continue
		}
		host, err := origin.Parse(fmt.Sprintf("h%d.test", seq))
		if err != nil {
			return err
		}
		site := &audit.Site{Seq: seq, Input: host.Host(), Origin: host,
			Fetch: exchange.Response{Outcome: exchange.DNSNotFound}}
		if seq%2 == 0 {
			body := fmt.Appendf(nil, "User-agent: GPTBot\nDisallow: /\n\nUser-agent: *\nDisallow: /%d\nFoo: bar\n", seq)
			site.Fetch = exchange.Response{Outcome: exchange.Answered, Status: http.StatusOK, Answered: host.As(origin.HTTPS),
				Body: body}
		}
		audit.Judge(site)
		if err := w.Add(site); err != nil {
			return err
		}
	}
	return nil
}

// surveyed writes a small dataset like the commands, or completes it: the scan with its statistics, and a compaction.
func surveyed(s *Store) error {
	ctx := context.Background()
	w, err := openScan(s, func(o *sink.Options) { o.PartRows = 5 })
	if err != nil {
		return err
	}
	defer func() { _ = w.Abort() }() // does nothing after Close; the first error says more
	err = addMissing(w)
	if err == nil {
		err = w.Flush(ctx)
	}
	if err == nil {
		err = stats.Write(ctx, s, "s", survey.Options{})
	}
	if err == nil {
		err = w.Complete(ctx)
	}
	if err == nil {
		err = w.Close(ctx)
	}
	if err == nil {
		err = compacted(s)
	}
	return err
}

// found returns the rows of all tables of a survey, in an order that does not depend on the division into parts.
func found(s *Store) (map[string][]string, error) {
	scan, err := commit.ReadScan(context.Background(), s, "s")
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	err = errors.Join(
		gather(all, schema.Sites, read.Rows[schema.SiteRow](context.Background(), scan, schema.Sites)),
		gather(all, schema.Verdicts, read.Rows[schema.VerdictRow](context.Background(), scan, schema.Verdicts)),
		gather(all, schema.TokenStats, table.FileRows[schema.TokenStatsRow](context.Background(), s,
			commit.StatsName(schema.TokenStats, scan.Manifest.ScanDate, "s"))))
	return all, err
}

func gather[T any](all map[string][]string, table string, rows iter.Seq2[*T, error]) error {
	for row, err := range rows {
		if err != nil {
			return err
		}
		text, err := json.Marshal(row)
		if err != nil {
			return err
		}
		all[table] = append(all[table], string(text))
	}
	slices.Sort(all[table])
	return nil
}

// TestEveryRequestFails repeats a survey with other failing requests each time, until each request has failed. If a
// retry succeeds, the survey succeeds. If all requests fail from one on, because of the network or a lost permission,
// the survey ends with an error that says so. The same commands then complete it with the rows of an undisturbed
// survey, and without leftovers. Of the requests that only read, a sample fails between two changes.
func TestEveryRequestFails(t *testing.T) {
	long(t)
	virtual(t, func(t *testing.T, g *storetest.Gateway) {
		// Pages of default length, and a lock that is not renewed meanwhile: each run sends the same requests.
		quiet := func(p *proxy) func(*Config) {
			return func(c *Config) {
				harmed(p)(c)
				c.page, c.Lease = 0, time.Minute
			}
		}
		calm := newProxy(t, g, once(0, none))
		s := open(t, g, "calm", quiet(calm))
		if err := surveyed(s); err != nil {
			t.Fatal(err)
		}
		asks := calm.requests()
		want, err := found(s)
		if err != nil || len(want[schema.Verdicts]) < 10 || len(want[schema.TokenStats]) == 0 {
			t.Fatalf("too little to compare with: %d verdicts, %v", len(want[schema.Verdicts]), err)
		}
		whole := func(s *Store) error {
			got, err := found(s)
			if err == nil && !maps.EqualFunc(got, want, slices.Equal) {
				err = fmt.Errorf("%d sites, %d verdicts that are not those of an undisturbed survey", len(got[schema.Sites]),
					len(got[schema.Verdicts]))
			}
			return errors.Join(err, complete(s))
		}
		const apart = 12 // each run has one request in so many fail
		harms := []fault{reset, internal, drop, busy}
		together(apart*len(harms), 12, func(i int) {
			f, first, asked := harms[i%len(harms)], i/len(harms), 0
			p := newProxy(t, g, func(*http.Request) fault {
				if asked++; asked%apart == first {
					return f
				}
				return none
			})
			s := open(t, g, fmt.Sprintf("once%d", i), quiet(p))
			err := surveyed(s)
			if err == nil {
				err = whole(open(t, g, s.cfg.Prefix, nil))
			}
			if err != nil {
				t.Errorf("%s at request %d, and every %d behind it: %v\n%s", f, first, apart, err, strings.Join(p.requests(), "\n"))
			}
		})
		harms = []fault{denied, reset, drop}
		type target struct {
			n int
			f fault
		}
		var targets []target
		for i, request := range asks {
			if i%5 > 0 && (strings.HasPrefix(request, "GET") || strings.HasPrefix(request, "HEAD")) {
				continue
			}
			targets = append(targets, target{i + 1, harms[len(targets)%len(harms)]})
		}
		together(len(targets), 24, func(i int) {
			at, asked := targets[i], 0
			p := newProxy(t, g, func(*http.Request) fault {
				if asked++; asked >= at.n {
					return at.f
				}
				return none
			})
			prefix := fmt.Sprintf("good%d", i)
			err := surveyed(open(t, g, prefix, func(c *Config) {
				quiet(p)(c)
				c.Lease = testLease
			}))
			switch {
			case err == nil:
				t.Errorf("%s from request %d on: no error", at.f, at.n)
			case at.f == denied:
				if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "needs the rights s3:PutObject") {
					t.Errorf("%s from request %d on: %v", at.f, at.n, err)
				}
			case !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "given up after"):
				t.Errorf("%s from request %d on: %v", at.f, at.n, err)
			}
			direct := open(t, g, prefix, nil)
			err = surveyed(direct)
			if err == nil {
				err = whole(direct)
			}
			if err != nil {
				t.Errorf("%s from request %d on, then resumed: %v\n%s", at.f, at.n, err, strings.Join(p.requests(), "\n"))
			}
		})
		t.Logf("%d runs for %d requests", len(targets), len(asks))
	})
}

// TestSpoolFolder shows the errors for an unusable folder of temporary files, that they are not taken for a missing
// object, and that the same command continues once the folder is usable. cmd/bulkscan tests a full one.
func TestSpoolFolder(t *testing.T) {
	g := storetest.StartGateway(t)
	f := func(what, folder, want string, mend func() error) {
		t.Helper()
		s := open(t, g, what, func(c *Config) { c.Spool = folder })
		err := surveyed(s)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(),
			"everything committed is kept, and the same command resumes scan s") {
			t.Errorf("%s: %v", what, err)
		}
		if errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: it is taken for an error of the server: %v", what, err)
		}
		if err := errors.Join(mend(), surveyed(s), complete(s)); err != nil {
			t.Errorf("%s, mended: %v", what, err)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing")
	f("missing", missing, "no temporary file: make the folder "+missing+", or let TMPDIR name another one",
		func() error { return os.Mkdir(missing, 0o700) })
	none := file(t, "")
	f("file", none, "no temporary file: make the folder "+none,
		func() error { return errors.Join(os.Remove(none), os.Mkdir(none, 0o700)) })
	if os.Geteuid() == 0 {
		t.Log("SKIPPED: a folder without permission: root has all")
		return
	}
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	f("closed", closed, "no temporary file in "+closed+" (TMPDIR says where)",
		func() error { return os.Chmod(closed, 0o700) })
}

// complete reports problems of a dataset that scanned has completed.
func complete(s *Store) error {
	ctx := context.Background()
	var errs []error
	verified, err := verify.Dataset(ctx, s,
		verify.Options{Report: func(f verify.Finding) { errs = append(errs, errors.New(f.String())) }})
	if err != nil {
		return err
	}
	scan, err := commit.ReadScan(ctx, s, "s")
	if err != nil {
		return err
	}
	var hosts []string
	for row, err := range read.Rows[schema.SiteRow](ctx, scan, schema.Sites) {
		if err != nil {
			return err
		}
		hosts = append(hosts, row.Host)
	}
	slices.Sort(hosts)
	if want := "h0.test h1.test h2.test h3.test h4.test h5.test h6.test h7.test h8.test h9.test"; strings.Join(hosts,
		" ") != want || scan.Manifest.State != commit.Complete || verified.Scans != 1 {
		errs = append(errs, fmt.Errorf("%q, %s, %d scans", hosts, scan.Manifest.State, verified.Scans))
	}
	err = s.Sweep(ctx, "", func(name string) bool {
		errs = append(errs, fmt.Errorf("left: an upload of %s", name))
		return false
	})
	return errors.Join(append(errs, err)...)
}
