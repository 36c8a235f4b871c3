package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// This file is the -inflight mode: what exchanges hold while they wait. The server keeps all answers back until every
// request has come, and then as long as it takes to look, and for Plan.Hold at least; so all are in flight at the same time,
// shaken hands and asked, when it is looked.

// HeldResult is what was measured of a contender with so many exchanges in flight.
type HeldResult struct {
	Name     string
	Group    Group
	InFlight int
	Held     Held
	Measured Measured
}

// Each is what one exchange holds in heap and stacks, in bytes: with the garbage of what led to it, and without.
func (h *HeldResult) Each() (now, live float64) {
	n := float64(h.InFlight)
	return (h.Held.Now.sum() - h.Held.Before.sum()) / n, (h.Held.Live.sum() - h.Held.Before.sum()) / n
}

func (m Memory) sum() float64 { return float64(m.Heap + m.Stacks) }

// compareHeld measures ours, and whoever else is made of Go and holds its connections in goroutines.
func compareHeld(ctx context.Context, report *Report, plan Plan, chosen []Contender, command string) (*Figures, error) {
	most := 0
	for _, n := range plan.Held {
		most = max(most, n)
	}
	if err := enoughFiles(most); err != nil {
		return nil, err
	}
	l, err := open(ctx, serverConfig{Addresses: plan.Addresses, Certificates: plan.Certificates, Fault: plan.fault})
	if err != nil {
		return nil, err
	}
	defer l.close()
	figures := &Figures{Machine: thisMachine(), Plan: plan}
	report.HeldHead(figures, command)
	for _, n := range plan.Held {
		for _, c := range chosen {
			// The chain is forgotten as soon as it is verified: in flight, both forms of TLS are the same.
			if c.Tool != nil || c.New == nil || c.Name == floor || c.Group == Verified {
				continue
			}
			h, err := l.held(ctx, c, n, plan)
			if err != nil {
				return nil, fmt.Errorf("%s, %d in flight: %w", c.Name, n, err)
			}
			figures.Held = append(figures.Held, *h)
			now, live := h.Each()
			report.note("%d in flight: %-24s %.1f KB each, %.1f KB without garbage, peak RSS %.0f MB\n", n, h.Name, now/1e3, live/1e3, float64(h.Measured.PeakRSS)/1e6)
		}
	}
	report.Held(figures)
	return figures, nil
}

// heldTimeout is what an exchange has that is kept waiting.
const heldTimeout = 3 * time.Minute

// held measures one contender.
func (l *lab) held(ctx context.Context, c Contender, n int, plan Plan) (*HeldResult, error) {
	if _, err := l.counts(ctx); err != nil {
		return nil, err
	}
	if _, err := l.command(ctx, serverCommand{Hold: n}); err != nil {
		return nil, err
	}
	web := l.web
	web.Timeout = heldTimeout // thousands of handshakes take their time
	h := &HeldResult{Name: c.Name, Group: c.Group, InFlight: n}
	m, err := l.contend(ctx, job{Contender: c.Name, Web: web, N: n, InFlight: n, Held: true}, func(ctx context.Context, ask func() (*Held, error)) error {
		all, err := l.reply(ctx)
		if err != nil {
			return err
		}
		if all.Held != n {
			return errors.New("the server does not hold what it should")
		}
		held, err := ask()
		if err != nil {
			return err
		}
		h.Held = *held
		select {
		case <-time.After(time.Until(all.At.Add(plan.Hold))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		_, err = l.command(ctx, serverCommand{Release: true})
		return err
	})
	if err != nil {
		return nil, err
	}
	if m.Server, err = l.counts(ctx); err != nil {
		return nil, err
	}
	plan.N, plan.Warm, plan.InFlight = n, 0, n
	m.audit(c, plan)
	h.Measured = *m
	return h, nil
}
