package main

import (
	"context"
	"errors"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/scan/shares"
	"github.com/bulkscan/bulkscan/terminal"
)

// planFlags are the flags of plan.
type planFlags struct {
	shares.PlanOptions
	ratesFlag
	format, column string
	resolver       []string
	dnsRate        float64
	json           bool
}

func (a *app) planCommand() *cobra.Command {
	f := &planFlags{}
	c := &cobra.Command{
		Use:   "plan LIST…",
		Short: "Say what a scan in shares of a list needs",
		Long: `plan reads a list, looks up the addresses of a sample of its sites, and prints the busiest addresses, the least time that
the rates allow, how many shares to make for the tasks that run at once, the domains that make a share larger than
others, and the command that submits the array job. It asks name servers, and no site. docs/cluster.md`,
		Example: `  bulkscan plan list.csv --workers 8
  bulkscan plan list.csv --sample 100000 --json | jq .busiest_addresses`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case f.Workers < 1:
				return usagef("--workers %d: at least 1", f.Workers)
			case f.Sample < 0:
				return usagef("--sample %d: at least 0", f.Sample)
			}
			if err := checkRates(rate{"ip-rate", f.IPRate}, rate{"dns-rate", f.dnsRate}); err != nil {
				return err
			}
			if err := f.readRates(); err != nil {
				return err
			}
			if f.rates != nil {
				f.Rates = f.rates
			}
			return a.interruptible(c.Context(), func(ctx context.Context) error { return a.plan(ctx, f, args) })
		},
	}
	c.Flags().IntVar(&f.Workers, "workers", 4, "how many tasks will run at once")
	c.Flags().Float64Var(&f.IPRate, "ip-rate", 10,
		"exchanges a second to one address that the scan will have (0: no limit)")
	f.add(c.Flags())
	c.Flags().IntVar(&f.Sample, "sample", 10_000,
		"how many sites are looked up, drawn from the whole list; at least its length: all")
	c.Flags().StringVar(&f.format, "format", "auto", "form of the lists, as in scan")
	c.Flags().StringVar(&f.column, "column", "", "column of the hosts, as in scan")
	c.Flags().StringSliceVar(&f.resolver, "resolver", nil, "DNS servers to ask, HOST:PORT,… (default the system's)")
	c.Flags().Float64Var(&f.dnsRate, "dns-rate", 1000, "DNS questions a second (0: no limit)")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return c
}

func (a *app) plan(ctx context.Context, f *planFlags, lists []string) (err error) {
	format, err := inputs.ParseFormat(f.format)
	if err != nil || format == inputs.WARC {
		return usagef("--format %s: a list of sites", clipped(f.format))
	}
	list, err := scan.OpenList(ctx, lists, inputs.Options{Format: format, Column: f.column, Stdin: a.stdin})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, list.Close()) }()
	planner := shares.NewPlanner(f.PlanOptions)
	for {
		entry, err := list.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		planner.Add(entry.Origin)
	}
	if err := f.lookUp(ctx, a.network, planner); err != nil {
		return err
	}
	plan := planner.Plan()
	if f.json {
		return terminal.WriteJSON(a.stdout, plan)
	}
	return terminal.Plan(a.stdout, plan, lists)
}

// lookUp finds the addresses of the sample.
func (f *planFlags) lookUp(ctx context.Context, over network, planner *shares.Planner) error {
	if len(planner.Sample()) == 0 {
		return nil
	}
	resolver, err := resolve.New(f.resolver, resolve.Options{Rate: f.dnsRate, Network: over.Network})
	if err != nil {
		return usagef("--resolver: %w", err)
	}
	planner.LookUp(func(host string) []netip.Addr { return resolver.Lookup(ctx, host).Addrs })
	return errors.Join(ctx.Err(), resolver.Close())
}
