package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/simweb"
	"github.com/bulkscan/bulkscan/internal/simweb/compare"
)

// chaosSeed is that of the web and of what disturbs it.
const chaosSeed = 32

// What a scan through a bad network is set to. Names have as long as the resolver gives them.
const (
	chaosTimeout = 4 * time.Second
	chaosNames   = 10 * time.Second
)

// unlikeItself are behaviours that no scan through a bad network can be judged by: hosts that only fail at first remember who
// has asked them, and what reaches them is the network's choice.
var unlikeItself = []string{"flaky-503", "flaky-reset"}

// chaos scans the mixed web through a network that disturbs it: once through a relay, which does to each connection what the seed
// says, and once over a link that loses packets, between two network namespaces, where this process may make some.
func (l *lab) chaos(ctx context.Context) error {
	web, err := simweb.Start(ctx, simweb.Config{Seed: chaosSeed})
	if err != nil {
		return err
	}
	defer web.Close()
	policy := simweb.DefaultPolicy()
	var hosts []string
	for i, host := range web.Names(l.sizes.chaos) {
		host = []string{"http://", "https://"}[i%2] + host // what the other scheme came to would explain nothing
		o, err := origin.Parse(host)
		if err != nil {
			return err
		}
		if !slices.Contains(unlikeItself, web.Expect(o, policy).Behaviour) {
			hosts = append(hosts, host)
		}
	}
	list, err := l.write("chaos.list", hosts)
	if err != nil {
		return err
	}
	c := chaosRun{lab: l, list: list, d: compare.Disturbance{Web: web, Policy: policy, Hosts: hosts, Within: chaosTimeout + chaosNames}}
	return errors.Join(c.relayed(ctx), c.linked(ctx))
}

// chaosRun is what both networks are tried with.
type chaosRun struct {
	*lab
	list string
	d    compare.Disturbance
}

// relayed scans through simweb.Chaos.
func (c *chaosRun) relayed(ctx context.Context) error {
	bad, err := simweb.StartChaos(c.d.Web, simweb.DefaultChaos(chaosSeed))
	if err != nil {
		return err
	}
	defer bad.Close()
	w := &web{flags: []string{"--resolver", bad.DNSAddr().String(), "--allow-private", "--dns-rate", "0"}}
	for _, to := range bad.ConnectTo() {
		w.flags = append(w.flags, "--connect-to", to)
	}
	c.printf("\n## chaos: %d origins through a relay\n\n", len(c.d.Hosts))
	c.d.Faced = bad.Faced
	if err := c.through(ctx, w); err != nil {
		return err
	}
	s := bad.Stats()
	c.printf("\nConnections by what was done to them:")
	for kind, n := range s.Connections {
		if n > 0 {
			c.printf(" %v %d,", simweb.FaultKind(kind), n)
		}
	}
	c.printf(" and %d of %d packets of names were lost.\n", s.Lost, s.Packets)
	return nil
}

// linked scans over a link between two network namespaces.
func (c *chaosRun) linked(ctx context.Context) error {
	c.printf("\n## chaos: %d origins over a link that loses packets\n\n", len(c.d.Hosts))
	n, err := newNetwork(ctx)
	if err != nil {
		c.printf("SKIPPED: no two network namespaces with a link between them: %v\n", err)
		return nil
	}
	defer func() { err = errors.Join(err, n.close()) }()
	c.printf("%s.\n\n", n.says)
	inside := *c.lab
	inside.simweb, inside.bulkscan = n.wrapper(c.dir, "web", n.far, c.simweb), n.wrapper(c.dir, "scan", n.near, c.bulkscan)
	if err := n.wrapErr; err != nil {
		return err
	}
	w, err := inside.start(ctx, "--seed", strconv.Itoa(chaosSeed))
	if err != nil {
		return err
	}
	lossy := simweb.Fault{Kind: simweb.FaultPackets}
	c.d.Faced = func(string) []simweb.Fault { return []simweb.Fault{lossy} }
	was := c.bulkscan
	c.bulkscan = inside.bulkscan
	err = c.through(ctx, w)
	c.bulkscan = was
	return errors.Join(err, w.stop())
}

// through scans by the flags of a web, and tells what came of it.
func (c *chaosRun) through(ctx context.Context, w *web) error {
	o, err := c.scan(ctx, w, c.list, slices.Concat(pace, []string{"--timeout", chaosTimeout.String(), "--concurrency", "500"}, c.flags)...)
	if err != nil {
		return err
	}
	r, err := compare.Disturbed(ctx, o.scan, c.d)
	if err != nil {
		return err
	}
	c.printf("%d rows in %.1f s, %.1f CPU s.", r.Rows, o.wall.Seconds(), o.cpu.Seconds())
	var outcomes []string
	for _, outcome := range exchange.Outcomes() {
		if n := r.Outcomes[outcome.String()]; n > 0 {
			outcomes = append(outcomes, fmt.Sprintf("%v %d", outcome, n))
		}
	}
	if len(outcomes) > 0 {
		c.printf(" Of those that are not what the undisturbed web has: %s.", strings.Join(outcomes, ", "))
	}
	c.printf("\n\n")
	c.must(r.Rows == r.Expected && r.Twice+r.Missing+r.Unknown == 0, "every origin has exactly one row (%d of %d)", r.Rows, r.Expected)
	c.must(r.Wrong == 0, "each is true (%d) or explained by a fault of its connection (%d)", r.True, r.Rows-r.True-r.Wrong)
	c.must(r.Late == 0, "none took longer than its time-outs allow")
	for _, example := range r.Examples {
		c.printf("  - %s\n", example)
	}
	return nil
}

// wrapper writes a command that runs another in a namespace, and returns its path.
func (n *network) wrapper(dir, name, space, command string) string {
	path := filepath.Join(dir, "in-"+name)
	text := fmt.Sprintf("#!/bin/sh\nexec ip netns exec %s %s \"$@\"\n", space, command)
	n.wrapErr = errors.Join(n.wrapErr, os.WriteFile(path, []byte(text), 0o755))
	return path
}
