package main

import "context"

// truth scans 100,000 origins and holds every row against what the web says it did.
func (l *lab) truth(ctx context.Context) error {
	hosts, real, err := l.hosts(ctx, l.origins)
	if err != nil {
		return err
	}
	list, err := l.write("truth.list", hosts)
	if err != nil {
		return err
	}
	o, err := l.try(ctx, trial{list: list, web: append([]string{"--seed", "7"}, l.corpus()...)})
	if err != nil {
		return err
	}
	n := float64(len(hosts))
	l.printf("\n## truth: %d origins (%s), %s\n\n", len(hosts), kind(real, "real hosts", "made-up hosts"), kind(l.corpus() != nil, "real bodies", "made-up bodies"))
	l.printf("| origins | wall | origins/s | CPU s | CPU s per 10k | peak memory | live heap at most |\n|---|---|---|---|---|---|---|\n")
	l.printf("| %d | %.1f s | %.0f | %.1f | %.2f | %d MB | %d MB |\n\n", len(hosts), o.wall.Seconds(), n/o.wall.Seconds(), o.cpu.Seconds(), o.cpu.Seconds()*10_000/n, o.peak>>20, o.live)
	l.mustBeTrue()
	return nil
}
