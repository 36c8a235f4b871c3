package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/bench/built"
)

// contender is something that takes processor time for the hosts of a healthy web.
type contender struct {
	name string
	cpu  func(ctx context.Context, secure bool) (seconds float64, err error) // errors.ErrUnsupported: it cannot do this
}

// healthy are the flags of the web that all contenders meet.
var healthy = []string{"--only", "ok", "--bodies", "64"}

// whole scans healthy hosts, each by its name, in turns with clients that only exchange, with other scanners where they
// are installed, and with an earlier version. What counts is the processor time of the client's process; the web is
// another. One more run says where the time of a scan went, by the labels of its profile.
func (l *lab) whole(ctx context.Context) error {
	n := l.n(50_000)
	l.printf("\n## whole: %d healthy origins, made-up bodies\n\nProcessor seconds of the client's process for 10,000 "+
		"origins, user's and system's: the median of %d runs in turns.\n\n", n, l.runs)
	trials := map[bool]trial{}
	for secure, scheme := range map[bool]string{false: "http", true: "https"} {
		all := hosts(n)
		for i, host := range all {
			all[i] = scheme + "://" + host
		}
		list, err := l.write("whole-"+scheme+".list", all)
		if err != nil {
			return err
		}
		trials[secure] = trial{list: list, web: healthy, trusted: secure}
	}
	contenders, err := l.contenders(ctx, n, trials)
	if err != nil {
		return err
	}
	took := map[bool]map[string][]float64{false: {}, true: {}}
	for range l.runs {
		for _, c := range contenders {
			for secure, of := range took {
				seconds, err := c.cpu(ctx, secure)
				if errors.Is(err, errors.ErrUnsupported) {
					continue
				}
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				of[c.name] = append(of[c.name], seconds*1e4/float64(n))
			}
		}
	}
	l.printf("\n| | plain | of the least | TLS, verified | of the least |\n|---|--:|--:|--:|--:|\n")
	for _, c := range contenders {
		l.printf("| %s |", c.name)
		for _, secure := range []bool{false, true} {
			of := took[secure]
			if len(of[c.name]) == 0 {
				l.printf(" | |")
				continue
			}
			least := median(of[c.name])
			for _, other := range of {
				least = min(least, median(other))
			}
			l.printf(" %.2f | %.1f × |", median(of[c.name]), median(of[c.name])/least)
		}
		l.printf("\n")
	}
	l.printf("\n")
	for _, secure := range []bool{false, true} {
		if err := l.stages(ctx, trials[secure]); err != nil {
			return err
		}
	}
	l.mustBeTrue()
	return nil
}

// contenders are in the order of the report. It says which are absent.
func (l *lab) contenders(ctx context.Context, n int, trials map[bool]trial) (all []contender, err error) {
	absent := func(name string, why any) { l.printf("- %s is not measured: %v\n", name, why) }
	root, err := built.Root(ctx)
	if err != nil {
		return nil, err
	}
	floor := filepath.Join(l.dir, "floor")
	source := filepath.Join(root, "bench", "floor", "floor.c")
	if text, err := exec.CommandContext(ctx, "cc", "-O2", "-o", floor, source).CombinedOutput(); err != nil {
		absent("the floor", fmt.Sprintf("%v %s", err, text))
	} else {
		run := l.visiting(func(w *built.Web, secure bool) []string {
			if secure {
				return nil
			}
			return []string{floor, w.Hot, strconv.Itoa(w.HTTPPort), strconv.Itoa(n), "256"}
		})
		all = append(all, contender{"floor: epoll in C, no names, no parsing", run})
	}
	benchmarks := filepath.Join(l.dir, "bench.test")
	compile := exec.CommandContext(ctx, "go", "test", "-c", "-o", benchmarks, "github.com/bulkscan/bulkscan/bench")
	if text, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build the benchmarks: %w\n%s", err, text)
	}
	for _, name := range []string{"raw", "fasthttp", "nethttp", "bulkscan"} {
		all = append(all, contender{name + ", exchanges alone", func(ctx context.Context, secure bool) (float64, error) {
			return benchmark(ctx, benchmarks, name, secure, n)
		}})
	}
	if path, err := exec.LookPath("zgrab2"); err != nil {
		absent("zgrab2", err)
	} else {
		all = append(all, contender{"zgrab2, no names", l.visiting(func(w *built.Web, secure bool) []string {
			args := []string{path, "http", "--endpoint", "/robots.txt", "--senders", "256", "--max-redirects", "0",
				"-o", os.DevNull, "-f", l.listed(n, w.Hot+",h%d.hot.test")}
			if secure {
				return append(args, "--use-https", "--port", strconv.Itoa(w.TLSPort))
			}
			return append(args, "--port", strconv.Itoa(w.HTTPPort))
		})})
	}
	if path, err := exec.LookPath("httpx"); err != nil {
		absent("httpx", err)
	} else {
		all = append(all, contender{"httpx", l.visiting(func(w *built.Web, secure bool) []string {
			list := l.listed(n, fmt.Sprintf("http://h%%d.hot.test:%d", w.HTTPPort))
			if secure {
				list = l.listed(n, fmt.Sprintf("https://h%%d.hot.test:%d", w.TLSPort))
			}
			return []string{path, "-l", list, "-path", "/robots.txt", "-threads", "256", "-r", w.Resolver, "-silent",
				"-disable-update-check", "-o", os.DevNull}
		})})
	}
	if name, program, err := l.earlier(ctx, root); err != nil {
		absent("an earlier version", err)
	} else {
		all = append(all, contender{"whole scan of " + name, l.visiting(func(w *built.Web, secure bool) []string {
			dir := filepath.Join(l.dir, "earlier")
			_ = os.RemoveAll(dir) // what is left of it makes the scan fail
			args := append([]string{program, "scan", trials[secure].list, "-o", dir, "--progress", "none"}, w.Flags()...)
			args = append(append(args, pace...), l.flags...)
			if secure {
				args = append(args, "--ca-file", filepath.Join(l.dir, "ca.pem"))
			}
			return args
		})})
	}
	return append(all, contender{"**whole scan**", func(ctx context.Context, secure bool) (float64, error) {
		o, err := l.try(ctx, trials[secure])
		if err != nil {
			return 0, err
		}
		return o.cpu.Seconds(), nil
	}}), nil
}

// visiting returns a contender that runs a command against a web of its own. A nil command stands for a scan that the
// contender cannot do.
func (l *lab) visiting(command func(w *built.Web, secure bool) []string) func(context.Context, bool) (float64, error) {
	return func(ctx context.Context, secure bool) (float64, error) {
		w, err := built.StartWeb(ctx, l.simweb, append([]string{"--ca", filepath.Join(l.dir, "ca.pem")}, healthy...)...)
		if err != nil {
			return 0, err
		}
		seconds := 0.0
		args := command(w, secure)
		if args == nil {
			err = errors.ErrUnsupported
		} else {
			c := exec.CommandContext(ctx, args[0], args[1:]...)
			var text []byte
			if text, err = c.CombinedOutput(); err != nil {
				err = fmt.Errorf("%w\n%s", err, text)
			} else {
				seconds = built.CPU(c.ProcessState).Seconds()
			}
		}
		_, stopErr := w.Stop()
		return seconds, errors.Join(err, stopErr)
	}
}

// listed writes a list of hosts for another scanner and returns its path.
func (l *lab) listed(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format+"\n", i)
	}
	path := filepath.Join(l.dir, "others.list")
	_ = os.WriteFile(path, []byte(b.String()), 0o666) // without it the scanner says so
	return path
}

var perTenThousand = regexp.MustCompile(`([\d.]+) cpu-s/10k`)

// benchmark runs one client of BenchmarkTransport, which starts a web of its own.
func benchmark(ctx context.Context, program, client string, secure bool, n int) (float64, error) {
	scheme := map[bool]string{false: "http", true: "https"}[secure]
	text, err := exec.CommandContext(ctx, program, "-test.run", "^$", "-test.benchtime", strconv.Itoa(n)+"x",
		"-test.bench", "Transport/scheme="+scheme+"$/by="+client+"$").CombinedOutput()
	if m := perTenThousand.FindSubmatch(text); err == nil && m != nil {
		seconds, err := strconv.ParseFloat(string(m[1]), 64)
		return seconds * float64(n) / 1e4, err
	}
	return 0, fmt.Errorf("%w\n%s", errors.Join(err, errors.New("the benchmark has reported nothing")), text)
}

// earlier builds the version of -ref, or of the last tag.
func (l *lab) earlier(ctx context.Context, root string) (name, program string, err error) {
	git := func(args ...string) (string, error) {
		text, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(text))
		}
		return strings.TrimSpace(string(text)), err
	}
	name = l.ref
	if name == "" {
		if name, err = git("describe", "--tags", "--abbrev=0"); err != nil {
			return "", "", errors.New("there is no tag, and no -ref")
		}
	}
	tree, program := filepath.Join(l.dir, "tree"), filepath.Join(l.dir, "bulkscan-earlier")
	if _, err := git("worktree", "add", "--detach", tree, name); err != nil {
		return "", "", err
	}
	c := exec.CommandContext(ctx, "go", "build", "-o", program, "./"+built.Bulkscan)
	c.Dir, c.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
	text, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("cannot build %s: %w\n%s", name, err, text)
	}
	_, removeErr := git("worktree", "remove", "--force", tree)
	return name, program, errors.Join(err, removeErr)
}

// stages prints where the processor time of a scan went.
func (l *lab) stages(ctx context.Context, t trial) error {
	profile := filepath.Join(l.dir, "cpu.prof")
	t.scan = []string{"--cpuprofile", profile}
	o, err := l.try(ctx, t)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, "go", "tool", "pprof", "-tags", profile)
	var stderr bytes.Buffer
	c.Stderr, c.Env = &stderr, append(os.Environ(), "PPROF_TMPDIR="+l.dir)
	text, err := c.Output()
	if err != nil {
		return fmt.Errorf("cannot read the profile: %w\n%s", err, &stderr)
	}
	how := map[bool]string{false: "plain", true: "by TLS"}[t.trusted]
	l.printf("A scan %s took %v and at most %d MB. The samples of its profile with a label:\n\n```\n%s\n```\n\n", how,
		o.wall.Round(time.Second), o.peak>>20, bytes.TrimSpace(text))
	return nil
}
