package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bulkscan/bulkscan/bench/built"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/simweb/compare"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
)

const (
	shareTasks  = 8
	shareKills  = 20
	sharedRate  = 200 // exchanges a second to an address
	hotShare    = 0.05
	shareMemory = 150 << 20
)

// taskMemory is GOMEMLIMIT of a task. Collections then begin early enough for shareMemory.
const taskMemory = "120MiB"

// shares scans a list by one process, and in shares: by one task after another, by eight at once, and by eight which
// are killed at random and started again. The rows must be the truth, the hot address must get its rate at most, and
// shares must not cost more. A process that gets an eighth of a machine takes more CPU for a request, whatever it
// scans. So tasks one after another are compared with the one process, and tasks at once with eight scans of an eighth
// of the list each, which know nothing of shares.
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
	alone, err := l.inShares(ctx, t, 1, 0)
	if err != nil {
		return err
	}
	apart, err := l.apart(ctx, t, lines)
	if err != nil {
		return err
	}
	eight, err := l.inShares(ctx, t, shareTasks, 0)
	if err != nil {
		return err
	}
	killed, err := l.inShares(ctx, t, shareTasks, shareKills)
	if err != nil {
		return err
	}
	l.printf("\n## shares: %d origins, of which %.0f %% share one address, `--ip-rate %d --concurrency 200`\n\n",
		len(lines), 100*hotShare, sharedRate)
	l.printf(
		"| | wall s | CPU s | of it collect | of it killed | requests | CPU a request, µs | most memory MB | hot address: busiest 1 s, 10 s |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	// Sites that a kill loses are fetched again, so the CPU is compared by requests.
	cost := func(o *outcome) float64 { return 1e6 * o.cpu.Seconds() / float64(o.came.Connections) }
	row := func(name string, s *shared) {
		l.printf("| %s | %.0f | %.1f | %.1f | %.1f | %d | %.0f | %d | %d, %d |\n", name, s.wall.Seconds(), s.cpu.Seconds(),
			s.collect.Seconds(), s.lost.Seconds(),
			s.came.Connections, cost(&s.outcome), s.peak>>20, s.came.Hot.Second, s.came.Hot.TenSeconds)
	}
	row("one process", &shared{outcome: *one})
	row(fmt.Sprintf("%d tasks, one after another", shareTasks), alone)
	row(fmt.Sprintf("%d scans at once, without shares", shareTasks), apart)
	row(fmt.Sprintf("%d tasks at once", shareTasks), eight)
	row(fmt.Sprintf("%d tasks at once, %d kills", shareTasks, killed.kills), killed)
	l.printf("\n")
	l.must(killed.kills == shareKills, "tasks were killed %d times", killed.kills)
	l.must(max(alone.peak, eight.peak, killed.peak) < shareMemory, "a task takes less than %d MB, with GOMEMLIMIT=%s",
		shareMemory>>20, taskMemory)
	l.must(cost(&alone.outcome) <= 1.05*cost(one),
		"a request of tasks one after another takes at most 5 %% more CPU than one of the one process (%+.1f %%)",
		100*(cost(&alone.outcome)/cost(one)-1))
	l.must(cost(&eight.outcome) <= 1.05*cost(&apart.outcome),
		"a request of tasks at once takes at most 5 %% more than one of scans at once without shares (%+.1f %%)",
		100*(cost(&eight.outcome)/cost(&apart.outcome)-1))
	l.printf(
		"- %d processes at once, on %d processors, take %+.1f %% more than one without shares, %+.1f %% with them, and %+.1f %% with kills\n", shareTasks, runtime.NumCPU(),
		100*(cost(&apart.outcome)/cost(one)-1), 100*(cost(&eight.outcome)/cost(one)-1),
		100*(cost(&killed.outcome)/cost(one)-1))
	second, ten := 1.1*sharedRate+shareTasks, float64(10*sharedRate+shareTasks)
	l.must(float64(max(eight.came.Hot.Second, killed.came.Hot.Second)) <= second,
		"the hot address took at most %.0f connections in any second", second)
	l.must(float64(max(eight.came.Hot.TenSeconds, killed.came.Hot.TenSeconds)) <= ten,
		"the hot address took at most %.0f connections in any ten", ten)
	l.mustBeTrue()
	return nil
}

// shared is the outcome of a scan in shares: CPU and memory of all its processes, the killed ones included.
type shared struct {
	outcome
	collect time.Duration // CPU of collecting
	lost    time.Duration // CPU of tasks that were killed; not all that they did was lost
	kills   int

	mu      sync.Mutex
	running []*exec.Cmd
}

// inShares is try with shareTasks tasks, so many at once, of which some are killed.
func (l *lab) inShares(ctx context.Context, t trial, atOnce, kills int) (*shared, error) {
	truth, err := l.truthOf(ctx, t)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(l.dir, "dataset")
	s, err := l.together(ctx, t, atOnce, kills, func(i int) []string {
		return slices.Concat([]string{t.list, "-o", dir, "--workers", strconv.Itoa(atOnce), "--shard",
			fmt.Sprintf("%d/%d", i, shareTasks)}, t.scan)
	})
	if err != nil {
		return nil, err
	}
	begun, collect := time.Now(), exec.CommandContext(ctx, l.bulkscan, "collect", dir)
	if text, err := collect.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	s.collect = built.CPU(collect.ProcessState)
	s.cpu += s.collect
	s.wall += time.Since(begun)
	return s, l.compareShares(ctx, s, dir, truth)
}

// apart measures the cost of as many processes at once without shares: each scans an eighth of the list into a dataset
// of its own, at an eighth of the rate.
func (l *lab) apart(ctx context.Context, t trial, lines []string) (*shared, error) {
	var parts [shareTasks][]string
	for i, line := range lines {
		parts[i%shareTasks] = append(parts[i%shareTasks], line)
	}
	var lists [shareTasks]string
	for i, part := range parts {
		var err error
		if lists[i], err = l.write(fmt.Sprintf("shares-%d.list", i), part); err != nil {
			return nil, err
		}
	}
	return l.together(ctx, t, shareTasks, 0, func(i int) []string {
		return slices.Concat([]string{lists[i], "-o", filepath.Join(l.dir, "dataset", strconv.Itoa(i))}, t.scan,
			[]string{"--ip-rate", strconv.Itoa(sharedRate / shareTasks)})
	})
}

// together runs shareTasks scans with these arguments, so many at once, of which some are killed, against a web that
// has had no visitor before.
func (l *lab) together(ctx context.Context, t trial, atOnce, kills int, args func(i int) []string) (*shared, error) {
	record, dir := filepath.Join(l.dir, "accepts.json"), filepath.Join(l.dir, "dataset")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o777), os.MkdirAll(l.tmp(), 0o700)); err != nil {
		return nil, err
	}
	w, err := built.StartWeb(ctx, l.simweb, slices.Concat(t.web, []string{"--record-accepts", record})...)
	if err != nil {
		return nil, err
	}
	flags := slices.Concat([]string{"scan", "--scan-id", "bench", "--progress", "none", "--log-level", "error"}, pace,
		w.Flags())
	s, begun := &shared{running: make([]*exec.Cmd, shareTasks)}, time.Now()
	tasks, end := context.WithCancel(ctx)
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		s.killAtRandom(tasks, kills, time.Duration(l.scale*float64(8*time.Second)))
	}()
	errs, slots := make([]error, shareTasks), make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range shareTasks {
		c := exec.Command(l.bulkscan, slices.Concat(flags, args(i), l.flags)...)
		// An engine gives each task its part of the processors.
		c.Env = append(os.Environ(), "TMPDIR="+l.tmp(), "GOMEMLIMIT="+taskMemory, fmt.Sprintf("GOMAXPROCS=%d",
			max(1, runtime.NumCPU()/atOnce)))
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = s.task(ctx, i, c, l.stderr)
		})
	}
	all.Wait()
	s.wall = time.Since(begun)
	end()
	<-killed
	_, stopErr := w.Stop()
	if err := errors.Join(append(errs, stopErr)...); err != nil {
		return nil, err
	}
	came, err := os.ReadFile(record)
	if err == nil {
		err = json.Unmarshal(came, &s.came)
	}
	return s, err
}

// compareShares compares the collected rows with the truth.
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
func (s *shared) task(ctx context.Context, i int, like *exec.Cmd, stderr io.Writer) error {
	for {
		c := exec.CommandContext(ctx, like.Path, like.Args[1:]...)
		c.Env, c.Stderr = like.Env, stderr
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
		killed := c.ProcessState.ExitCode() == -1 && ctx.Err() == nil
		s.cpu += built.CPU(c.ProcessState)
		if killed {
			s.lost += built.CPU(c.ProcessState)
		}
		s.mu.Unlock()
		if !killed {
			return err
		}
	}
}

// watchMemory notes the most memory of a task. The system's figure at a process's end includes the memory of the
// process that started it, which has the complete list here.
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

// killAtRandom kills tasks so many times, each some time after the last.
func (s *shared) killAtRandom(ctx context.Context, kills int, mean time.Duration) {
	dice := rand.New(rand.NewPCG(1, 2))
	for s.kills < kills {
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
