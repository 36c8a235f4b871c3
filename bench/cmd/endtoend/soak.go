package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/bench/facts"
	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/sink"
)

// sample is what the process holds at a moment at which no scan is under way.
type sample struct {
	at                      time.Duration // since the soak began
	scans, origins          int           // so far
	heap                    uint64        // bytes that are live after a collection
	goroutines, files, tmps int
	resident                int64 // bytes, of which the collector may give some back one day
}

// soakTolerance is how much more of a thing the last third of the samples may have than the second third. Sockets of the
// resolver are closed some time after their last question, and each has a goroutine; a heap is never twice the same.
var soakTolerance = []struct {
	what  string
	of    func(*sample) float64
	share float64 // of the second third's
	more  float64 // beyond that
	unit  string
}{
	{"live heap", func(s *sample) float64 { return float64(s.heap) / (1 << 20) }, 0.05, 1, " MB"},
	{"goroutines", func(s *sample) float64 { return float64(s.goroutines) }, 0, 8, ""},
	{"open files", func(s *sample) float64 { return float64(s.files) }, 0, 8, ""},
	{"temporary files", func(s *sample) float64 { return float64(s.tmps) }, 0, 0, ""},
	{"resident memory", func(s *sample) float64 { return float64(s.resident) / (1 << 20) }, 0.1, 8, " MB"},
}

// soak scans the mixed web again and again in one process, this one, and looks at what that holds between two scans. Everything
// that a scan makes of its own is made anew for each, and what asks (the fetcher and the resolver, with what they remember) serves
// all of them, as it does in a scan that is as long. The web is a process of its own.
func (l *lab) soak(ctx context.Context) error {
	hosts, _, err := l.hosts(ctx, l.soakOrigins)
	if err != nil {
		return err
	}
	list, err := l.write("soak.list", hosts)
	if err != nil {
		return err
	}
	t := trial{list: list, web: append([]string{"--seed", "7"}, l.corpus()...)}
	truth, err := l.truthOf(ctx, t)
	if err != nil {
		return err
	}
	w, err := l.start(ctx, t.web...)
	if err != nil {
		return err
	}
	err = l.soakIn(ctx, w, list, truth)
	return errors.Join(err, w.stop())
}

func (l *lab) soakIn(ctx context.Context, w *web, list, truth string) (err error) {
	tmp := filepath.Join(l.dir, "tmp")
	if err := os.MkdirAll(tmp, 0o777); err != nil {
		return err
	}
	before, was := os.LookupEnv("TMPDIR")
	if err := os.Setenv("TMPDIR", tmp); err != nil {
		return err
	}
	defer func() {
		if was {
			err = errors.Join(err, os.Setenv("TMPDIR", before))
		} else {
			err = errors.Join(err, os.Unsetenv("TMPDIR"))
		}
	}()
	resolver, err := resolve.New([]string{w.resolver}, resolve.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resolver.Close()) }()
	// Time-outs are long, and exchanges few, so that a machine that is busy otherwise finds the same rows.
	cfg := fetcher.Config{
		Timeout: 10 * time.Second, MaxRedirects: fetcher.DefaultMaxRedirects,
		Retries: fetcher.DefaultRetries, RetryAfter: 2 * time.Second, MaxRetryAfter: 5 * time.Second,
		UserAgent: "bulkscan/soak", AllowPrivate: true, Resolver: resolver, Roots: x509.NewCertPool(),
	}
	for _, text := range w.connectTo {
		to, err := fetcher.ParseConnectTo(text)
		if err != nil {
			return err
		}
		cfg.ConnectTo = append(cfg.ConnectTo, to)
	}
	fetch, err := fetcher.New(cfg)
	if err != nil {
		return err
	}

	every := min(time.Minute, l.duration/15)
	l.printf("\n## soak: %d origins again and again for %v, in one process\n\n", l.soakOrigins, l.duration)
	l.printf("Between two scans, after a collection, about every %v.\n\n", every)
	l.printf("| after | scans | origins | live heap | goroutines | open files | temporary files | resident memory |\n|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	begun, origins := time.Now(), 0
	var all []sample
	for scans := 1; time.Since(begun) < l.duration || len(all) < 3; scans++ {
		n, err := l.soakOnce(ctx, fetch, list, truth)
		if err != nil {
			return err
		}
		origins += n
		if at := time.Since(begun); at >= time.Duration(len(all))*every {
			s, err := takeSample(tmp)
			if err != nil {
				return err
			}
			s.at, s.scans, s.origins = at, scans, origins
			all = append(all, s)
			l.printf("| %v | %d | %d | %.1f MB | %d | %d | %d | %d MB |\n", s.at.Round(time.Second), s.scans, s.origins,
				float64(s.heap)/(1<<20), s.goroutines, s.files, s.tmps, s.resident>>20)
		}
	}
	l.printf("\nThe medians of the last third of the samples, beside those of the second third:\n\n")
	for _, v := range flat(all) {
		l.must(v.ok, "%s", v.text)
	}
	l.mustBeTrue()
	return nil
}

// soakOnce is one scan of the list, from its opening to the statistics. It returns how many origins it has kept.
func (l *lab) soakOnce(ctx context.Context, fetch *fetcher.Fetcher, list, truth string) (kept int, err error) {
	dir := filepath.Join(l.dir, "soaked")
	if err := os.RemoveAll(dir); err != nil {
		return 0, err
	}
	st, err := store.NewDir(dir)
	if err != nil {
		return 0, err
	}
	writer, err := sink.Open(ctx, st, sink.Options{ScanID: "soak", Registry: tokens.Default(), PartRows: 10_000})
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, writer.Abort())
		}
	}()
	reader, err := inputs.Open(ctx, []string{list}, inputs.Options{})
	if err != nil {
		return 0, err
	}
	p := pipeline.New(pipeline.Config{Concurrency: 200, Patience: pipeline.DefaultPatience, Skip: writer.Done}, listed{reader}, fetch, audit.New(tokens.Default()), writer)
	if err := errors.Join(p.Run(ctx), reader.Close()); err != nil {
		return 0, err
	}
	if err := writer.Flush(ctx); err != nil {
		return 0, err
	}
	if err := report.Stats(ctx, st, "soak", report.Options{Registry: tokens.Default()}); err != nil {
		return 0, err
	}
	if err := errors.Join(writer.Complete(ctx), writer.Close(ctx)); err != nil {
		return 0, err
	}
	scan, err := sink.ReadScan(ctx, st, "soak")
	if err != nil {
		return 0, err
	}
	result, err := held(ctx, scan, truth)
	if err != nil {
		return 0, err
	}
	l.rows += result.Rows
	if !result.OK() {
		l.untrue = append(l.untrue, result)
	}
	return result.Rows, nil
}

// listed makes a Reader what the pipeline reads.
type listed struct{ *inputs.Reader }

func (s listed) Next() (pipeline.Entry, error) {
	e, err := s.Reader.Next()
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("cannot read the list: %w", err)
	}
	return pipeline.Entry{Seq: e.Seq, Input: e.Input, Origin: e.Origin, Rank: e.Rank, Label: e.Label}, err
}

// takeSample looks at this process.
func takeSample(tmp string) (sample, error) {
	runtime.GC()
	runtime.GC() // what has a finalizer, and what is in a sync.Pool, takes two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s := sample{heap: m.HeapAlloc, goroutines: runtime.NumGoroutine(), resident: facts.Memory("self", facts.Resident)}
	files, err := os.ReadDir("/dev/fd")
	if err != nil {
		return s, err
	}
	tmps, err := os.ReadDir(tmp)
	s.files, s.tmps = len(files), len(tmps)
	return s, err
}

// flatness is whether something has stayed as it was.
type flatness struct {
	ok   bool
	text string
}

// flat compares the last third of the samples with the second. The first does not count: what is kept for reuse is made in it.
func flat(all []sample) (list []flatness) {
	third := len(all) / 3
	for _, t := range soakTolerance {
		median := func(of []sample) float64 {
			var values []float64
			for i := range of {
				values = append(values, t.of(&of[i]))
			}
			return median(values)
		}
		second, last := median(all[third:len(all)-third]), median(all[len(all)-third:])
		bound := second*(1+t.share) + t.more
		list = append(list, flatness{last <= bound, fmt.Sprintf("%s: %.1f%s, and before %.1f%s; at most %.1f%s", t.what, last, t.unit, second, t.unit, bound, t.unit)})
	}
	return list
}
