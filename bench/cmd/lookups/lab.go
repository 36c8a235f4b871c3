package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// lab starts servers and contenders, and keeps the report.
type lab struct {
	plan   plan
	self   string // this program's path
	stdout io.Writer
	notes  io.Writer // what goes on, which is not in the report
	report bytes.Buffer
	failed bool // some mark was missed
}

// printf adds to the report and shows it as it grows.
func (l *lab) printf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.report.WriteString(text)
	fmt.Fprint(l.stdout, text)
}

// verdict adds what must hold to the report.
func (l *lab) verdict(marks []mark) {
	l.printf("\n")
	if len(marks) == 0 {
		l.printf("Of sizes so small nothing is claimed.\n")
	}
	for _, m := range marks {
		yes := "yes"
		if !m.ok {
			yes, l.failed = "**NO**", true
		}
		l.printf("- %s: %s\n", m.what, yes)
	}
}

// nameServer is a server's process.
type nameServer struct {
	cmd      *exec.Cmd
	input    io.Closer
	commands *json.Encoder
	replies  *json.Decoder
	addr     netip.AddrPort
}

// serve starts a server.
func (l *lab) serve(ctx context.Context, f faults) (*nameServer, error) {
	s := &nameServer{cmd: exec.CommandContext(ctx, l.self, "server")}
	s.cmd.Stderr = os.Stderr
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the server: %w", err)
	}
	s.input, s.commands, s.replies = in, json.NewEncoder(in), json.NewDecoder(out)
	var r serverReply
	if err := errors.Join(s.commands.Encode(f), s.replies.Decode(&r)); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start the server: %w", err), s.close())
	}
	s.addr = r.Addr
	return s, nil
}

// close ends the server.
func (s *nameServer) close() error {
	_ = s.input.Close()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("the server has ended: %w", err)
	}
	return nil
}

// counts is what the server has seen since the last time.
func (s *nameServer) counts() (counts, error) {
	var r serverReply
	if err := errors.Join(s.commands.Encode("count"), s.replies.Decode(&r)); err != nil {
		return counts{}, fmt.Errorf("the server says nothing: %w", err)
	}
	return r.Counts, nil
}

// turn lets one contender do one job.
func (l *lab) turn(ctx context.Context, s *nameServer, experiment string, j job) (*measured, error) {
	if _, err := s.counts(); err != nil { // nobody's any more
		return nil, err
	}
	if l.plan.profiles != "" {
		j.Profile = filepath.Join(l.plan.profiles, profileName(experiment, j.Contender))
	}
	j.Server = s.addr
	order, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	full := overflows()
	c := exec.CommandContext(ctx, l.self, "contender")
	var out bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(order), &out, os.Stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("cannot measure %s: %w", j.Contender, err)
	}
	m := new(measured)
	if err := json.Unmarshal(out.Bytes(), m); err != nil {
		return nil, fmt.Errorf("cannot understand what was measured of %s: %w", j.Contender, err)
	}
	m.Warm, m.Overflows = j.Warm, overflows()-full
	if m.Server, err = s.counts(); err != nil {
		return nil, err
	}
	fmt.Fprintf(l.notes, "%s: %s: %.0f/s, %.3f CPU s per 10k, %d lost, %d wrong\n", experiment, j.Contender, m.rate(), m.cost(), m.Lost, m.Wrong)
	return m, nil
}

// profileName is that of a contender's profile.
func profileName(experiment, contender string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, contender)
	return experiment + "-" + plain + ".prof"
}
