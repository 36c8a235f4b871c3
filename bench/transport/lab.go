package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Figures is all that a run found out.
type Figures struct {
	Machine Machine
	Plan    Plan
	Results []Result     `json:",omitempty"`
	Held    []HeldResult `json:",omitempty"`
	Marks   []Mark
}

// Result is what was measured of a contender.
type Result struct {
	Contender Contender  `json:"-"`
	Name      string     // the contender's
	Version   string     `json:",omitempty"`
	Absent    string     `json:",omitempty"` // why it was not measured
	Rounds    []Measured `json:",omitempty"`
}

// compare lets all contenders take turns, round by round, so that what slows the machine down for a while slows all.
func compare(ctx context.Context, report *Report, plan Plan, chosen []Contender, command string) (*Figures, error) {
	l, err := open(ctx, serverConfig{Addresses: plan.Addresses, Certificates: plan.Certificates, Fault: plan.fault})
	if err != nil {
		return nil, err
	}
	defer l.close()
	figures := &Figures{Machine: thisMachine(), Plan: plan}
	paths := make([]string, len(chosen))
	for i, c := range chosen {
		r := Result{Contender: c, Name: c.Name}
		paths[i], r.Version, err = c.present(ctx)
		if err != nil {
			r.Absent = err.Error()
		}
		figures.Results = append(figures.Results, r)
	}
	report.Head(figures, command)
	for round := range plan.Rounds {
		for i := range figures.Results {
			r := &figures.Results[i]
			if r.Absent != "" {
				continue
			}
			m, err := l.turn(ctx, r.Contender, paths[i], plan, round)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.Name, err)
			}
			r.Rounds = append(r.Rounds, *m)
			report.note("round %d of %d: %-32s %.3f CPU s per 10k, %.0f/s, %d errors\n", round+1, plan.Rounds, r.Name, m.Cost(), m.Rate(), m.Errors)
		}
	}
	report.Compare(figures)
	return figures, nil
}

// present tells which version is here, or why none is.
func (c *Contender) present(ctx context.Context) (path, version string, err error) {
	if c.Tool == nil {
		if c.New == nil {
			return "", "", errors.New("only on Linux")
		}
		return "", moduleVersion(c.Module), nil
	}
	if path, err = exec.LookPath(c.Tool.Name); err != nil {
		return "", "", errors.New("not on the PATH")
	}
	version, err = c.Tool.version(ctx, path)
	return path, version, err
}

// lab is the server, and who starts everybody else.
type lab struct {
	self     string
	server   *exec.Cmd
	commands *json.Encoder
	input    io.Closer
	replies  chan serverReply
	web      Web
}

// open starts the server.
func open(ctx context.Context, cfg serverConfig) (*lab, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program: %w", err)
	}
	l := &lab{self: self, server: exec.CommandContext(ctx, self, "server"), replies: make(chan serverReply, 1)}
	l.server.Stderr = os.Stderr
	in, err := l.server.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := l.server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := l.server.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the server: %w", err)
	}
	l.commands, l.input = json.NewEncoder(in), in
	go func() {
		defer close(l.replies)
		for replies := json.NewDecoder(out); ; {
			var r serverReply
			if replies.Decode(&r) != nil {
				return
			}
			l.replies <- r
		}
	}()
	err = l.commands.Encode(cfg)
	if err == nil {
		var r serverReply
		if r, err = l.reply(ctx); err == nil && r.Web == nil {
			err = errors.New(r.Error)
		} else if err == nil {
			l.web = *r.Web
		}
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("cannot start the server: %w", err)
	}
	return l, nil
}

// close ends the server.
func (l *lab) close() {
	_ = l.input.Close()
	for range l.replies { // until it has ended
	}
	_ = l.server.Wait() // it has said on stderr what was wrong
}

// reply waits for what the server says next.
func (l *lab) reply(ctx context.Context) (serverReply, error) {
	select {
	case r, ok := <-l.replies:
		if !ok {
			return r, errors.New("the server has ended")
		}
		return r, nil
	case <-ctx.Done():
		return serverReply{}, context.Cause(ctx)
	case <-time.After(maxTurn):
		return serverReply{}, errors.New("the server says nothing")
	}
}

func (l *lab) command(ctx context.Context, c serverCommand) (serverReply, error) {
	if err := l.commands.Encode(c); err != nil {
		return serverReply{}, fmt.Errorf("cannot tell the server: %w", err)
	}
	return l.reply(ctx)
}

// counts returns what the server has seen since the last time, once it sees nothing more.
func (l *lab) counts(ctx context.Context) (all Counts, err error) {
	for {
		r, err := l.command(ctx, serverCommand{Count: true})
		if err != nil {
			return all, err
		}
		all.add(r.Counts)
		if r.Counts.Accepted == 0 {
			return all, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *Counts) add(more *Counts) {
	c.Accepted += more.Accepted
	c.Requests += more.Requests
	c.Handshakes += more.Handshakes
	c.Resumed += more.Resumed
	c.Older += more.Older
	c.CPU += more.CPU
}

// turn measures one contender once.
func (l *lab) turn(ctx context.Context, c Contender, path string, plan Plan, round int) (m *Measured, err error) {
	if _, err := l.counts(ctx); err != nil {
		return nil, err
	}
	if c.Tool != nil {
		m, err = c.Tool.run(ctx, toolTurn{Path: path, Web: &l.web, Secure: c.Group.Secure(), N: plan.N, InFlight: plan.InFlight, Round: round})
	} else {
		j := job{Contender: c.Name, Web: l.web, N: plan.N, Warm: plan.Warm, InFlight: plan.InFlight}
		if plan.Profiles != "" {
			j.Profile = filepath.Join(plan.Profiles, strings.NewReplacer("/", "-", " ", "-", "(", "", ")", "").Replace(c.Name)+".pprof")
		}
		m, err = l.contend(ctx, j, nil)
	}
	if err != nil {
		return nil, err
	}
	if m.Server, err = l.counts(ctx); err != nil {
		return nil, err
	}
	m.audit(c, plan)
	return m, nil
}

// audit holds what a contender says against what the server has seen, and makes what does not fit an error.
func (m *Measured) audit(c Contender, plan Plan) {
	said, seen := int64(m.Answers+m.Errors), m.Server
	switch {
	case c.Tool != nil && c.Tool.counts:
		// What was in flight at the end it does not count.
		if int64(m.Answers) > seen.Requests || seen.Requests > said+int64(plan.InFlight) {
			m.wrong(1, "%d exchanges, but the server has seen %d requests", said, seen.Requests)
		}
	case said != int64(plan.N):
		m.wrong(1, "%d exchanges, want %d", said, plan.N)
	case c.Tool == nil && seen.Requests != said+int64(plan.Warm), c.Tool != nil && seen.Requests != said:
		m.wrong(1, "%d exchanges, but the server has seen %d requests", said, seen.Requests)
	}
	switch {
	case c.Group.Secure() && seen.Handshakes < seen.Requests:
		m.wrong(1, "%d requests in %d handshakes", seen.Requests, seen.Handshakes)
	case !c.Group.Secure() && seen.Handshakes > 0:
		m.wrong(1, "%d handshakes in plain exchanges", seen.Handshakes)
	case seen.Accepted < seen.Requests:
		m.wrong(1, "%d requests over %d connections", seen.Requests, seen.Accepted)
	case seen.Resumed > 0 || seen.Older > 0:
		m.wrong(1, "%d handshakes resumed, %d before TLS 1.3", seen.Resumed, seen.Older)
	}
}

// contend starts a contender's process and returns what it measured. Between, watch gets what it holds in flight.
func (l *lab) contend(ctx context.Context, j job, watch watcher) (_ *Measured, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxTurn)
	defer cancel()
	c := exec.CommandContext(ctx, l.self, "contender")
	var errs bytes.Buffer
	c.Stderr = &errs
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("cannot start a contender: %w", err)
	}
	// Whoever waits for something else that the contender shall do hears when it has ended.
	replies := make(chan contenderReply, 2)
	alive, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	go func() {
		defer close(replies)
		for decoder := json.NewDecoder(out); ; {
			var r contenderReply
			if err := decoder.Decode(&r); err != nil {
				ended(errors.New("a contender has ended"))
				return
			}
			replies <- r
		}
	}()
	m, err := converse(alive, json.NewEncoder(in), replies, j, watch)
	_ = in.Close()
	if err != nil {
		cancel() // it may be waiting for what will not come
	}
	for range replies { // until it has ended
	}
	if failed := c.Wait(); failed != nil {
		return nil, fmt.Errorf("%w: %s", errors.Join(err, failed), tail(errs.Bytes()))
	}
	return m, err
}

// watcher looks on while a contender is at work. It may ask what that holds, and gives up when ctx ends.
type watcher func(ctx context.Context, ask func() (*Held, error)) error

func converse(ctx context.Context, in *json.Encoder, replies <-chan contenderReply, j job, watch watcher) (*Measured, error) {
	if err := in.Encode(j); err != nil {
		return nil, fmt.Errorf("cannot tell a contender what to do: %w", err)
	}
	if watch != nil {
		err := watch(ctx, func() (*Held, error) {
			if err := in.Encode("what do you hold?"); err != nil {
				return nil, err
			}
			r := <-replies
			if r.Held == nil {
				return nil, errors.New("a contender has ended too early")
			}
			return r.Held, nil
		})
		if err != nil {
			return nil, err
		}
	}
	r := <-replies
	if r.Measured == nil {
		return nil, errors.New("a contender does not tell what it measured")
	}
	return r.Measured, nil
}

// Cost is the processor time of ten thousand exchanges, in seconds.
func (m *Measured) Cost() float64 { return m.each(m.CPU.Seconds()) * 1e4 }

// Rate is exchanges a second.
func (m *Measured) Rate() float64 { return float64(m.Answers+m.Errors) / m.Wall.Seconds() }

func (m *Measured) each(sum float64) float64 { return sum / float64(max(1, m.Answers+m.Errors)) }

// over returns a figure of all rounds.
func (r *Result) over(figure func(*Measured) float64) []float64 {
	all := make([]float64, len(r.Rounds))
	for i := range r.Rounds {
		all[i] = figure(&r.Rounds[i])
	}
	return all
}

// Errors is the number of errors in all rounds, with some of them.
func (r *Result) Errors() (n int, examples []string) {
	for _, m := range r.Rounds {
		n += m.Errors
		examples = append(examples, m.Examples...)
	}
	return n, examples[:min(len(examples), maxExamples)]
}

// Ratio is what an exchange of ours costs, in those of another: by the best rounds of both, and the median of what it is
// in each round.
type Ratio struct{ Best, Median float64 }

func ratio(ours, theirs *Result) Ratio {
	a, b := ours.over((*Measured).Cost), theirs.over((*Measured).Cost)
	rounds := make([]float64, len(a))
	for i := range a {
		rounds[i] = a[i] / b[i]
	}
	return Ratio{Best: slices.Min(a) / slices.Min(b), Median: median(rounds)}
}

// result returns what was measured of a contender, nil where nothing was.
func (f *Figures) result(name string) *Result {
	for i := range f.Results {
		if r := &f.Results[i]; r.Name == name && len(r.Rounds) > 0 {
			return r
		}
	}
	return nil
}

// ours returns what was measured of ours in a group, nil where nothing was.
func (f *Figures) ours(g Group) *Result {
	for i := range f.Results {
		if c := f.Results[i].Contender; c.Group == g && c.Module == "github.com/bulkscan/bulkscan" && len(f.Results[i].Rounds) > 0 {
			return &f.Results[i]
		}
	}
	return nil
}

// median returns the middle one, of an even number the mean of both.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
