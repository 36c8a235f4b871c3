package main

import (
	"context"
	"slices"
	"time"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/simweb/compare"
)

// chaos scans hosts of every common behaviour through a relay that disturbs connections and loses packets of the name server,
// as a seed says. Left out are hosts that only fail at first: which of their connections reach them is the relay's choice.
func (l *lab) chaos(ctx context.Context) error {
	const seed, timeout, names = 32, 4 * time.Second, 10 * time.Second
	web, err := simweb.Start(ctx, simweb.Config{Seed: seed})
	if err != nil {
		return err
	}
	defer web.Close()
	bad, err := simweb.StartChaos(web, simweb.DefaultChaos(seed))
	if err != nil {
		return err
	}
	defer bad.Close()
	d := compare.Disturbance{Web: web, Policy: simweb.DefaultPolicy(), Faced: bad.Faced, Within: timeout + names}
	for i, host := range web.Names(l.n(20_000)) {
		entry := []string{"http://", "https://"}[i%2] + host // without a fallback to the other scheme, whose faults would explain nothing
		o, err := origin.Parse(entry)
		if err != nil {
			return err
		}
		if !slices.Contains([]string{"flaky-503", "flaky-reset"}, web.Expect(o, d.Policy).Behaviour) {
			d.Hosts = append(d.Hosts, entry)
		}
	}
	list, err := l.write("chaos.list", d.Hosts)
	if err != nil {
		return err
	}
	flags := []string{"--resolver", bad.DNSAddr().String(), "--allow-private", "--dns-rate", "0", "--timeout", timeout.String(), "--concurrency", "500"}
	for _, to := range bad.ConnectTo() {
		flags = append(flags, "--connect-to", to)
	}
	o, err := l.scan(ctx, list, slices.Concat(pace, flags, l.flags)...)
	if err != nil {
		return err
	}
	r, err := compare.Disturbed(ctx, o.scan, d)
	if err != nil {
		return err
	}
	l.printf("\n## chaos: %d origins through a bad network\n\n%.1f s, %.1f CPU s.\n\n```\n%s\n```\n\n", len(d.Hosts), o.wall.Seconds(), o.cpu.Seconds(), r)
	s := bad.Stats()
	l.printf("Connections by what was done to them:")
	for kind, n := range s.Connections {
		l.printf(" %v %d,", simweb.FaultKind(kind), n)
	}
	l.printf(" and %d of %d packets of names were lost.\n\n", s.Lost, s.Packets)
	l.must(r.OK(), "every origin has exactly one row, which is true or explained by a fault of its connection, and was in time")
	return nil
}
