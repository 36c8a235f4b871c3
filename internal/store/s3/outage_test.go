package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/store/storetest"
	"github.com/bulkscan/bulkscan/sink"
)

// openScan opens a small dataset.
func openScan(s *Store, changes ...func(*sink.Options)) (*sink.Writer, error) {
	o := sink.Options{ScanID: "s", Date: "2026-11-21", PartRows: 4, Tables: []string{sink.TableSites, sink.TableVerdicts}}
	for _, change := range changes {
		change(&o)
	}
	return sink.Open(context.Background(), s, o)
}

// scanned writes a small dataset, or what is missing of it.
func scanned(s *Store) error {
	w, err := openScan(s)
	if err != nil {
		return err
	}
	return addSites(w)
}

// addSites writes what is missing, and completes the scan.
func addSites(w *sink.Writer) (err error) {
	ctx := context.Background()
	defer func() {
		if err != nil {
			_ = w.Abort() // of the failures, the first tells more
		}
	}()
	for seq := range uint64(10) {
		if w.Done(seq) {
			continue
		}
		host, err := origin.Parse(fmt.Sprintf("h%d.test", seq))
		if err != nil {
			return err
		}
		if err := w.Add(&audit.Site{Seq: seq, Input: host.Host(), Origin: host, Fetch: exchange.Response{Outcome: exchange.DNSNotFound}}); err != nil {
			return err
		}
	}
	if err := w.Complete(ctx); err != nil {
		return err
	}
	return w.Close(ctx)
}

// TestOutages writes a dataset over and over, each time with a line that breaks for good at another request, before the
// server sees it or after it has acted. The writer ends with an error that says so; and the next one, over a good line,
// makes the dataset whole, with each site once and nothing left over.
func TestOutages(t *testing.T) {
	g := storetest.StartGateway(t)
	whole := newProxy(t, g, once(0, none))
	if err := scanned(open(t, g, "whole", harmed(whole, none))); err != nil {
		t.Fatal(err)
	}
	requests := len(whole.requests())
	harms := []fault{reset, drop}
	const step = 5 // each harm is tried at every fifth request
	together(requests/step*len(harms), func(i int) {
		f, n := harms[i%len(harms)], i/len(harms)*step+i%step+1
		asked := 0
		p := newProxy(t, g, func(*http.Request) fault {
			if asked++; asked >= n {
				return f
			}
			return none
		})
		prefix := fmt.Sprintf("o%d", i)
		err := scanned(open(t, g, prefix, func(c *Config) {
			harmed(p, f)(c)
			c.Patience, c.Lease = 50*time.Millisecond, time.Second
		}))
		if err == nil || !strings.Contains(err.Error(), "given up after") {
			t.Errorf("%s from request %d on: %v", f, n, err)
		}
		direct := open(t, g, prefix, nil)
		if err := errors.Join(scanned(direct), complete(direct)); err != nil {
			t.Errorf("%s from request %d on, then resumed: %v\n%s", f, n, err, strings.Join(p.requests(), "\n"))
		}
	})
}

// complete reports what is not as it must be in a dataset that scanned has made whole.
func complete(s *Store) error {
	ctx := context.Background()
	var errs []error
	found, err := sink.Verify(ctx, s, sink.VerifyOptions{Report: func(f sink.Finding) { errs = append(errs, errors.New(f.String())) }})
	if err != nil {
		return err
	}
	scan, err := sink.ReadScan(ctx, s, "s")
	if err != nil {
		return err
	}
	var hosts []string
	for row, err := range sink.Rows[sink.SiteRow](ctx, scan, sink.TableSites) {
		if err != nil {
			return err
		}
		hosts = append(hosts, row.Host)
	}
	slices.Sort(hosts)
	if want := "h0.test h1.test h2.test h3.test h4.test h5.test h6.test h7.test h8.test h9.test"; strings.Join(hosts, " ") != want || scan.Manifest.State != sink.Complete || found.Scans != 1 {
		errs = append(errs, fmt.Errorf("%q, %s, %d scans", hosts, scan.Manifest.State, found.Scans))
	}
	err = s.Sweep(ctx, "", func(name string) bool {
		errs = append(errs, fmt.Errorf("left: an upload of %s", name))
		return false
	})
	return errors.Join(append(errs, err)...)
}
