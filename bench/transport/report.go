package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/bench/facts"
)

// Report is a Markdown document.
type Report struct {
	out    io.Writer
	notes  io.Writer // how far it is; nil for nobody to be told
	failed bool
}

// note tells how far it is.
func (r *Report) note(format string, args ...any) {
	if r.notes != nil {
		fmt.Fprintf(r.notes, format, args...)
	}
}

func (r *Report) printf(format string, args ...any) { fmt.Fprintf(r.out, format, args...) }

// Machine is where was measured.
type Machine struct {
	Date       time.Time
	Go         string // with system and architecture
	Processors int
	Model      string
	Load       string // at the start, where the system tells
	Kernel     string
	Commit     string
}

func thisMachine() Machine {
	return Machine{
		Date: time.Now().UTC(), Go: fmt.Sprintf("%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH),
		Processors: runtime.NumCPU(), Model: facts.Processor(), Load: facts.Load(), Kernel: facts.Kernel(), Commit: facts.Commit(),
	}
}

// Mark is what must hold.
type Mark struct {
	What  string
	Value float64
	Most  float64
	OK    bool
	Binds bool // whether missing it fails the command: seconds are a machine's, ratios are ours
}

// The marks.
const (
	mostPlain      = 0.75 // CPU seconds of ten thousand exchanges
	mostUnverified = 3.9
	mostVerified   = 5.3

	mostOfFloor    = 1.6 // as ratios in the same run
	mostOfStock    = 0.65
	mostOfStockTLS = 0.85

	mostHeldPlain = 30e3 // bytes of an exchange in flight
	mostHeldTLS   = 80e3
	mostResident  = 900e6 // bytes of a process with 10,000 in flight

	// fewest is how many exchanges make a round that tells something.
	fewest = 1000
)

func (r *Report) head(title string, m Machine, command string) {
	r.printf("# %s, %s\n\n", title, m.Date.Format(time.DateOnly))
	r.printf("bulkscan %s, %s, %d processors, %s, kernel %s, load %s at the start. Made by `%s`.\n\n",
		m.Commit, m.Go, m.Processors, m.Model, m.Kernel, m.Load, command)
}

// Head says who is compared and how.
func (r *Report) Head(f *Figures, command string) {
	r.head("What an exchange costs", f.Machine, command)
	r.printf("| contender | version | what it does here | what it leaves out of what ours does |\n|---|---|---|---|\n")
	seen := map[string]bool{} // the same program in another group does the same
	for i := range f.Results {
		result := &f.Results[i]
		c := result.Contender
		name := strings.TrimSuffix(strings.TrimSuffix(c.Name, " verified"), " TLS")
		if seen[name] {
			continue
		}
		seen[name] = true
		version := result.Version
		if result.Absent != "" {
			version = "absent: " + result.Absent
		}
		r.printf("| %s | %s | %s | %s |\n", name, version, c.Does, or(c.Leaves, "–"))
	}
	certificates := "one certificate"
	if f.Plan.Certificates > 1 {
		certificates = fmt.Sprintf("%d certificates", f.Plan.Certificates)
	}
	r.printf(`
%d exchanges a turn, each over a fresh connection to a host of its own at %d loopback addresses, %d in flight; %d turns of each
contender, round by round. An answer is %d bytes, of them %d body. The server's hosts share %s (ECDSA P-256, TLS 1.3, no
resumption). What is made of Go has done %d exchanges before, which do not count. Figures are of the contender's process alone: CPU seconds (user and system) of ten thousand exchanges, the best
turn and the median; what is made of Go tells them for the exchanges, of others the whole process counts. Ratios are ours to
theirs, by CPU seconds: of the best turns of both, and the median of those of each round.
`, f.Plan.N, f.Plan.Addresses, f.Plan.InFlight, f.Plan.Rounds, len(answer), len(body), certificates, f.Plan.Warm)
}

// Compare writes the tables and what must hold.
func (r *Report) Compare(f *Figures) {
	for _, g := range groups {
		if !slices.ContainsFunc(f.Results, func(r Result) bool { return r.Contender.Group == g && len(r.Rounds) > 0 }) {
			continue
		}
		r.printf("\n## %s\n\n", strings.ToUpper(string(g[0]))+string(g[1:]))
		r.printf("| | CPU s per 10k | median | exchanges/s | median | ours to it | median | bytes allocated an exchange | allocations | peak RSS, MB | goroutines left | errors | server's CPU s per 10k |\n")
		r.printf("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
		ours := f.ours(g)
		for i := range f.Results {
			if result := &f.Results[i]; result.Contender.Group == g && len(result.Rounds) > 0 {
				r.row(result, ours)
			}
		}
	}
	for i := range f.Results {
		result := &f.Results[i]
		if n, examples := result.Errors(); n > 0 {
			r.printf("\n**%s: %d errors**, such as %q\n", result.Name, n, examples)
			r.failed = true
		}
	}
	f.Marks = f.marks()
	r.marks(f.Marks, f.Plan.N >= fewest)
}

func (r *Report) row(result, ours *Result) {
	cost, rate := result.over((*Measured).Cost), result.over((*Measured).Rate)
	r.printf("| %s | %s | %s | %s | %s |", result.Name, facts.Digits(slices.Min(cost)), facts.Digits(median(cost)), facts.Digits(slices.Max(rate)), facts.Digits(median(rate)))
	if ours == nil || ours == result {
		r.printf(" | |")
	} else {
		x := ratio(ours, result)
		r.printf(" %s | %s |", facts.Digits(x.Best), facts.Digits(x.Median))
	}
	if result.Contender.Tool == nil {
		r.printf(" %.0f | %s |", median(result.over(func(m *Measured) float64 { return m.each(float64(m.Bytes)) })),
			facts.Digits(median(result.over(func(m *Measured) float64 { return m.each(float64(m.Objects)) }))))
	} else {
		r.printf(" | |")
	}
	r.printf(" %s |", facts.Digits(slices.Max(result.over(func(m *Measured) float64 { return float64(m.PeakRSS) / 1e6 }))))
	if result.Contender.Tool == nil {
		r.printf(" %.0f |", slices.Max(result.over(func(m *Measured) float64 { return float64(m.Goroutines) })))
	} else {
		r.printf(" |")
	}
	n, _ := result.Errors()
	r.printf(" %d | %s |\n", n, facts.Digits(median(result.over(func(m *Measured) float64 { return m.each(m.Server.CPU.Seconds()) * 1e4 }))))
}

// marks holds the figures against what must hold.
func (f *Figures) marks() (all []Mark) {
	add := func(binds bool, most, value float64, format string, args ...any) {
		all = append(all, Mark{What: fmt.Sprintf(format, args...), Value: value, Most: most, OK: value <= most, Binds: binds})
	}
	for _, m := range []struct {
		group Group
		other string
		most  float64
	}{
		{Plain, floor, mostOfFloor},
		{Plain, stock, mostOfStock},
		{Unverified, stock + " TLS", mostOfStockTLS},
		{Verified, stock + " TLS verified", mostOfStockTLS},
	} {
		if a, b := f.ours(m.group), f.result(m.other); a != nil && b != nil {
			x := ratio(a, b)
			add(true, m.most, x.Best, "%s: ours to %s, best turns (median of rounds %s)", m.group, m.other, facts.Digits(x.Median))
		}
	}
	for _, m := range []struct {
		group Group
		most  float64
	}{{Plain, mostPlain}, {Unverified, mostUnverified}, {Verified, mostVerified}} {
		if a := f.ours(m.group); a != nil {
			cost := a.over((*Measured).Cost)
			add(false, m.most, slices.Min(cost), "%s: CPU s per 10k, best turn (median %s)", m.group, facts.Digits(median(cost)))
		}
	}
	return all
}

// marks writes what must hold. A miss fails the command where the mark binds and enough was measured.
func (r *Report) marks(all []Mark, enough bool) {
	r.printf("\n## What must hold\n\n")
	if !enough {
		r.printf("Nothing is claimed of rounds of fewer than %d exchanges.\n", fewest)
		return
	}
	for _, m := range all {
		mark := "yes"
		if !m.OK {
			mark = "**NO**"
			r.failed = r.failed || m.Binds
		}
		r.printf("- %s: %s ≤ %s: %s\n", m.What, facts.Digits(m.Value), facts.Digits(m.Most), mark)
	}
	r.printf("\nSeconds were set on one machine and are another's on another; missing them does not fail the command.\n")
}

// HeldHead says what is measured with -inflight.
func (r *Report) HeldHead(f *Figures, command string) {
	r.head("What exchanges hold in flight", f.Machine, command)
	r.printf(`The server keeps all answers back until every request has come, and for %v at least. Then all are in flight at once, and it is
looked what the client's process holds: heap in use and stacks by its runtime, over what it held before the first exchange,
for one exchange; as it is, and after a collection, without the garbage of what led there. Peak RSS is of the whole process,
to its end.
`, f.Plan.Hold)
}

// Held writes the table and what must hold.
func (r *Report) Held(f *Figures) {
	r.printf("\n| | in flight | KB each | KB without garbage | of it stacks | goroutines | RSS in flight, MB | peak RSS, MB | CPU s per 10k | errors |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for i := range f.Held {
		h := &f.Held[i]
		now, live := h.Each()
		stacks := (float64(h.Held.Live.Stacks) - float64(h.Held.Before.Stacks)) / float64(h.InFlight)
		r.printf("| %s | %d | %.1f | %.1f | %.1f | %d | %.0f | %.0f | %s | %d |\n", h.Name, h.InFlight, now/1e3, live/1e3, stacks/1e3,
			h.Held.Goroutines, float64(h.Held.RSS)/1e6, float64(h.Measured.PeakRSS)/1e6, facts.Digits(h.Measured.Cost()), h.Measured.Errors)
		if h.Measured.Errors > 0 {
			r.failed = true
		}
	}
	enough := false
	for i := range f.Held {
		h := &f.Held[i]
		if h.Measured.Errors > 0 {
			r.printf("\n**%s, %d in flight: %d errors**, such as %q\n", h.Name, h.InFlight, h.Measured.Errors, h.Measured.Examples)
		}
		if h.InFlight < fewest || !strings.HasPrefix(h.Name, ours) {
			continue
		}
		enough = true
		add := func(what string, value, most float64) {
			f.Marks = append(f.Marks, Mark{What: fmt.Sprintf("%s, %d in flight: %s", h.Group, h.InFlight, what), Value: value, Most: most, OK: value <= most, Binds: true})
		}
		now, _ := h.Each()
		most := mostHeldPlain
		if h.Group.Secure() {
			most = mostHeldTLS
		}
		add("KB each, garbage included", now/1e3, most/1e3)
		if h.InFlight == 10_000 && h.Measured.PeakRSS > 0 {
			add("MB of peak RSS", float64(h.Measured.PeakRSS)/1e6, mostResident/1e6)
		}
	}
	r.printf("\n## What must hold\n\n")
	if !enough {
		r.printf("Nothing is claimed of fewer than %d in flight.\n", fewest)
		return
	}
	for _, m := range f.Marks {
		mark := "yes"
		if !m.OK {
			mark, r.failed = "**NO**", true
		}
		r.printf("- %s: %s ≤ %s: %s\n", m.What, facts.Digits(m.Value), facts.Digits(m.Most), mark)
	}
}

func or(text, instead string) string {
	if text == "" {
		return instead
	}
	return text
}

// moduleVersion returns what the build knows of a contender's module; of our own, which the build takes from beside it,
// what git does; and of the standard library the toolchain's version.
func moduleVersion(module string) string {
	switch module {
	case "":
		return runtime.Version()
	case "github.com/bulkscan/bulkscan":
		return facts.Commit()
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return "unknown"
}
