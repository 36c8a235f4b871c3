package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bulkscan/bulkscan/bench/built"
	"github.com/bulkscan/bulkscan/internal/simweb"
	"github.com/bulkscan/bulkscan/internal/simweb/compare"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/commit"
)

const (
	shareTasks  = 8
	shareKills  = 20
	sharedRate  = 200 // exchanges a second to an address
	hotShare    = 0.05
	shareMemory = 150 << 20
)

// shares scans a list by one process, and in shares by eight, which are killed at random and started again. The rows must be the
// truth, the hot address must get its rate at most, and a share must not cost more than its part.
func (l *lab) shares(ctx context.Context) error {
	var lines []string
	for _, host := range simweb.Names(0, l.n(1_000_000)) {
		lines = append(lines, "http://"+host)
	}
	list, err := l.write("shares.list", lines)
	if err != nil {
		return err
	}
	t := trial{
		list: list, web: []string{"--only", "ok", "--hot-share", strconv.FormatFloat(hotShare, 'g', -1, 64)},
		scan: []string{"--ip-rate", strconv.Itoa(sharedRate), "--host-rate", "1", "--concurrency", "200"},
	}
	one, err := l.try(ctx, t)
	if err != nil {
		return err
	}
	l.printf("\n## shares: %d origins, of which %.0f %% share one address, `--ip-rate %d --concurrency 200`\n\n", len(lines), 100*hotShare, sharedRate)
	eight, err := l.inShares(ctx, t)
	if err != nil {
		return err
	}
	l.printf("| | wall s | CPU s | of it collect | most memory MB | hot address: busiest 1 s, 10 s |\n|---|--:|--:|--:|--:|--:|\n")
	row := func(name string, o *outcome, collect time.Duration) {
		l.printf("| %s | %.0f | %.0f | %.1f | %d | %d, %d |\n", name, o.wall.Seconds(), o.cpu.Seconds(), collect.Seconds(), o.peak>>20, o.came.Hot.Second, o.came.Hot.TenSeconds)
	}
	row("one process", one, 0)
	row(fmt.Sprintf("%d tasks, %d kills", shareTasks, eight.kills), &eight.outcome, eight.collect)
	l.printf("\n")
	l.must(eight.kills == shareKills, "tasks were killed %d times", eight.kills)
	l.must(eight.peak < shareMemory, "a task takes less than %d MB", shareMemory>>20)
	// What a kill loses is asked again, so the CPU is compared by requests.
	perOne, perEight := one.cpu.Seconds()/float64(one.came.Connections), eight.cpu.Seconds()/float64(eight.came.Connections)
	l.must(perEight <= 1.05*perOne, "a request takes at most 5 %% more CPU in shares (%.0f µs, %.0f µs)", 1e6*perOne, 1e6*perEight)
	second, ten := 1.1*sharedRate+shareTasks, float64(10*sharedRate+shareTasks)
	l.must(float64(eight.came.Hot.Second) <= second, "the hot address took at most %.0f connections in any second", second)
	l.must(float64(eight.came.Hot.TenSeconds) <= ten, "the hot address took at most %.0f connections in any ten", ten)
	l.mustBeTrue()
	return nil
}

// shared is the outcome of a scan in shares: CPU and memory of all its processes, the killed ones included.
type shared struct {
	outcome
	collect time.Duration // CPU of collecting
	kills   int

	mu      sync.Mutex
	running []*exec.Cmd
}

// inShares is try with shareTasks tasks.
func (l *lab) inShares(ctx context.Context, t trial) (*shared, error) {
	truth, err := l.truthOf(ctx, t)
	if err != nil {
		return nil, err
	}
	record, dir := filepath.Join(l.dir, "accepts.json"), filepath.Join(l.dir, "dataset")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(l.tmp(), 0o700)); err != nil {
		return nil, err
	}
	w, err := built.StartWeb(ctx, l.simweb, slices.Concat(t.web, []string{"--record-accepts", record})...)
	if err != nil {
		return nil, err
	}
	flags := slices.Concat([]string{"scan", t.list, "-o", dir, "--scan-id", "bench", "--progress", "none", "--log-level", "error", "--workers", strconv.Itoa(shareTasks)}, pace, w.Flags(), t.scan, l.flags)
	s, begun := &shared{running: make([]*exec.Cmd, shareTasks)}, time.Now()
	tasks, end := context.WithCancel(ctx)
	killed := make(chan struct{})
	go func() { defer close(killed); s.killAtRandom(tasks, time.Duration(l.scale*float64(8*time.Second))) }()
	errs := make([]error, shareTasks)
	var all sync.WaitGroup
	for i := range shareTasks {
		all.Go(func() {
			errs[i] = s.task(ctx, i, exec.Command(l.bulkscan, append(flags, "--shard", fmt.Sprintf("%d/%d", i, shareTasks))...), l)
		})
	}
	all.Wait()
	end()
	<-killed
	collect := exec.CommandContext(ctx, l.bulkscan, "collect", dir)
	text, collectErr := collect.CombinedOutput()
	if collectErr != nil {
		collectErr = fmt.Errorf("%w\n%s", collectErr, text)
	}
	webCPU, stopErr := w.Stop()
	if err := errors.Join(append(errs, collectErr, stopErr)...); err != nil {
		return nil, err
	}
	s.wall, s.collect, s.webCPU = time.Since(begun), built.CPU(collect.ProcessState), webCPU
	s.cpu += s.collect
	came, err := os.ReadFile(record)
	if err == nil {
		err = json.Unmarshal(came, &s.came)
	}
	if err != nil {
		return nil, err
	}
	return s, l.compareShares(ctx, s, dir, truth)
}

// compareShares holds the collected rows against the truth.
func (l *lab) compareShares(ctx context.Context, s *shared, dir, truth string) error {
	st, err := store.NewDir(dir)
	if err != nil {
		return err
	}
	if s.scan, err = commit.ReadScan(ctx, st, "bench"); err != nil {
		return err
	}
	file, err := os.Open(truth)
	if err != nil {
		return err
	}
	defer file.Close()
	held, err := compare.Compare(ctx, s.scan, file)
	if err != nil {
		return err
	}
	l.rows += held.Rows
	if !held.OK() {
		l.untrue = append(l.untrue, held)
	}
	return nil
}

// task runs one share until it is done. like is the command of each attempt.
func (s *shared) task(ctx context.Context, i int, like *exec.Cmd, l *lab) error {
	for {
		c := exec.CommandContext(ctx, like.Path, like.Args[1:]...)
		c.Env, c.Stderr = append(os.Environ(), "TMPDIR="+l.tmp()), l.stderr
		s.mu.Lock()
		err := c.Start()
		s.running[i] = c
		s.mu.Unlock()
		if err != nil {
			return err
		}
		ended := make(chan struct{})
		go s.watchMemory(c.Process.Pid, ended)
		err = c.Wait()
		close(ended)
		s.mu.Lock()
		s.running[i] = nil
		s.cpu += built.CPU(c.ProcessState)
		s.mu.Unlock()
		if killed := c.ProcessState.ExitCode() == -1 && ctx.Err() == nil; !killed {
			return err
		}
	}
}

// watchMemory notes the most memory of a task. What the system tells at a process's end includes the memory of the process that
// started it, which has the whole list here.
func (s *shared) watchMemory(pid int, ended <-chan struct{}) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // not Linux, or just ended
		}
		_, after, _ := strings.Cut(string(status), "VmHWM:")
		var kb int64
		if _, err := fmt.Sscan(after, &kb); err == nil {
			s.mu.Lock()
			s.peak = max(s.peak, kb<<10)
			s.mu.Unlock()
		}
	}
}

// killAtRandom kills tasks, each some time after the last.
func (s *shared) killAtRandom(ctx context.Context, mean time.Duration) {
	dice := rand.New(rand.NewPCG(1, 2))
	for s.kills < shareKills {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(2 * dice.Float64() * float64(mean))):
		}
		s.mu.Lock()
		if c := s.running[dice.IntN(shareTasks)]; c != nil && c.Process.Kill() == nil {
			s.kills++
		}
		s.mu.Unlock()
	}
}
