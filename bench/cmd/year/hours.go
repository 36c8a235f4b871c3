package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bulkscan/bulkscan/bench/built"
)

// This file runs nights back to back for some time, in which no more goes wrong than the script says, and sees whether anything grows
// from night to night: a team has years of them. Settings can be given by the environment, as in BULKSCAN_KEEP_NIGHTS=90d.

// grown are the figures of a night: what the last third of the nights may have more than the second, as a share and beyond it.
var grown = []struct {
	what        string
	unit        float64
	share, more float64
}{
	{"seconds", 1, 0.5, 1}, // the machine may have other work
	{"processor seconds", 1, 0.25, 0.5},
	{"MB of memory at most", 1 << 20, 0.1, 16},
	{"goroutines at most", 1, 0.1, 50},
	{"open files at most", 1, 0.1, 50},
	{"files and folders of the dataset, more than before the night", 1, 0.1, 2},
}

// leastThird is the number of nights in a third from which its median is judged: that of fewer is an accident.
const leastThird = 10

// The figures, as indices of grown.
const (
	took = iota
	cpu
	memory
	goroutines
	openFiles
	moreFiles
	numFigures
)

// hours runs nights until the time is over, and judges them and the ledger.
func hours(ctx context.Context, seed uint64, of size, lasting time.Duration, dir string, out io.Writer) error {
	begun := time.Now()
	m, err := newMonth(ctx, seed, of, func(int) bool { return false }, dir, out)
	if err != nil {
		return err
	}
	defer m.web.Close()
	tmp := filepath.Join(dir, "tmp")
	if err := errors.Join(os.MkdirAll(tmp, 0o777), os.Setenv("TMPDIR", tmp)); err != nil {
		return err
	}
	if m.metrics, err = built.FreeAddr(); err != nil {
		return err
	}
	var all [][numFigures]float64
	files := 0
	for n := 0; n < of.nights && time.Since(begun) < lasting && ctx.Err() == nil; n++ {
		figures, err := m.measured(ctx, n, &files)
		if ctx.Err() != nil {
			break // what was measured is reported
		}
		if err != nil {
			return err
		}
		all = append(all, figures)
	}
	m.nights = len(all) // of the script, which is judged
	fmt.Fprintf(out, "\n## back to back: %d sites, %d nights in %.0f minutes\n\n| median of a night | first third | second | last | at most |\n|---|--:|--:|--:|--:|\n", of.sites, len(all), time.Since(begun).Minutes())
	for i, of := range grown {
		var values []float64
		for _, night := range all {
			values = append(values, night[i]/of.unit)
		}
		third := len(values) / 3
		first, second, last := median(values[:third]), median(values[third:len(values)-third]), median(values[len(values)-third:])
		bound := second*(1+of.share) + of.more
		fmt.Fprintf(out, "| %s | %.1f | %.1f | %.1f | %.1f |\n", of.what, first, second, last, bound)
		m.check(third < leastThird || last <= bound, "%s: %.1f in the last third of the nights, at most %.1f", of.what, last, bound)
	}
	left, err := os.ReadDir(tmp)
	m.check(err == nil && len(left) == 0, "%d temporary files are left: %v", len(left), err)
	fmt.Fprintf(out, "\n%d files and folders are in the dataset, and %d temporary ones are left.\n", files, len(left))
	return m.end(ctx)
}

// measured runs a night and measures it.
func (m *month) measured(ctx context.Context, night int, files *int) (figures [numFigures]float64, err error) {
	m.night.Store(int64(night))
	if err := m.writeList(night, true); err != nil {
		return figures, err
	}
	c, text := m.command(ctx, night, false)
	begun, seen := time.Now(), make(chan [numFigures]float64)
	watching, stop := context.WithCancel(ctx)
	go func() { seen <- highest(watching, m.metrics) }()
	_ = c.Run() // its exit code says more
	stop()
	figures = <-seen
	if c.ProcessState == nil {
		return figures, fmt.Errorf("cannot start a night: %s", text)
	}
	figures[took] = time.Since(begun).Seconds()
	figures[cpu] = built.CPU(c.ProcessState).Seconds()
	if u, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
		figures[memory] = float64(u.Maxrss) * 1024
	}
	switch code := c.ProcessState.ExitCode(); code {
	case 0:
	case 3: // a network fails, and a person looks at it
		m.decides(ctx, night, "--release")
	default:
		m.check(false, "night %d ends with %d:\n%s", night, code, text)
	}
	before := *files
	*files = 0
	err = filepath.WalkDir(m.store.Root(), func(_ string, _ fs.DirEntry, err error) error {
		*files++
		return err
	})
	if err != nil {
		return figures, err
	}
	figures[moreFiles] = float64(*files - before)
	return figures, nil
}

// highest reads a scan's metrics until the context ends.
func highest(ctx context.Context, addr string) (figures [numFigures]float64) {
	for ctx.Err() == nil {
		values, err := built.Metrics(ctx, addr, "go_goroutines", "process_open_fds")
		if err == nil { // else the scan has not begun, or has ended
			figures[goroutines], figures[openFiles] = max(figures[goroutines], values[0]), max(figures[openFiles], values[1])
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return figures
}
