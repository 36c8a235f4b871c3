package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/sink"

	"github.com/bulkscan/bulkscan/bench/facts"
)

// Report is a Markdown document.
type Report struct {
	out, notes io.Writer
	marks      []string // of what Marks writes
	failed     bool
}

func (r *Report) note(format string, args ...any) { fmt.Fprintf(r.notes, format, args...) }

func (r *Report) printf(format string, args ...any) { fmt.Fprintf(r.out, format, args...) }

// Head says what was measured, where and how.
func (r *Report) Head(plan Plan, command string) {
	r.printf("# Writing Parquet\n\n%s, %s %s/%s, %d × %s, load %s at the start; bulkscan %s, arrow-go %s; `%s`\n\n",
		time.Now().UTC().Format("2 January 2006"), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), facts.Processor(), facts.Load(),
		facts.Commit(), arrowVersion(), command)
	if plan.Rounds == 0 {
		return
	}
	r.printf("| who | how |\n|---|---|\n")
	for _, c := range contenders {
		r.printf("| %s | %s |\n", c.Name, c.Does)
	}
	r.printf("| %s | `sink.Writer.Add` in parts of 50,000 sites, which writes only this table: rows are made, and then written as above |\n", whole)
	r.printf(`
The same rows for all, which share the memory of texts as a scan's do, with zstd at its default level (at its lowest in verdicts and
evidence), data pages v1, 65,536 rows a group, and dictionaries, delta encoding and statistics for the same columns. Each turn is a process of its own, %d turns each, round by round. Rates are rows for a second of
processor time, user's and system's, of all threads, which is what a core does; medians, and the best turn in brackets. Memory
is what the process held at most while the table was open, over what it held before. arrow-go looks how long a page is once in 8,192 rows, so
that its pages of `+"`value`"+` are a third longer than ours, and the 12,000 files, which come by turns, come again in them: that is why it writes fewer bytes there.
`, plan.Rounds)
}

// The marks: rows a second of a core, allocations a row, memory of an open table, and how many times as fast as arrow-go.
var leastRows = map[string]float64{sink.TableSites: 150_000, sink.TableVerdicts: 5_000_000, sink.TableEvidence: 2_000_000}

const (
	mostObjects = 0.1
	mostMemory  = 128e6
	leastTimes  = 3
)

// Table writes what came of a table's turns.
func (r *Report) Table(table string, results map[string][]Measured, real bool) {
	r.printf("\n## `%s`\n\n", table)
	if !real {
		r.printf("Made-up files: ../shared is absent.\n\n")
	}
	r.printf("| | rows/s a core | wall clock | allocations a row | bytes allocated a row | peak MB | bytes a row | ours to it |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	rate := func(name string) float64 { return median(results[name], (*Measured).rate) }
	for _, name := range append(names(), whole) {
		of := results[name]
		times, size := "", ""
		if name != whole {
			size = fmt.Sprintf("%.1f", median(of, func(m *Measured) float64 { return float64(m.File) / float64(m.Rows) }))
		}
		if name != ours && name != whole {
			times = fmt.Sprintf("%.1f×", rate(ours)/rate(name))
		}
		r.printf("| %s | %s (%s) | %s | %.3f | %.0f | %.0f | %s | %s |\n", name, thousands(rate(name)),
			thousands(best(of)),
			thousands(median(of, func(m *Measured) float64 { return float64(m.Rows) / m.Wall.Seconds() })),
			median(of, (*Measured).objects), median(of, func(m *Measured) float64 { return float64(m.Bytes) / float64(m.Rows) }),
			median(of, func(m *Measured) float64 { return float64(m.Peak) / 1e6 }),
			size, times)
	}
	r.mark(rate(ours) >= leastRows[table], "%s: %s rows/s a core, at least %s", table, thousands(rate(ours)), thousands(leastRows[table]))
	fastest := max(rate(columns), rate(records))
	r.mark(rate(ours) >= leastTimes*fastest, "%s: %.1f times as fast as arrow-go, whichever way is faster, at least %d", table, rate(ours)/fastest, leastTimes)
	objects := median(results[ours], (*Measured).objects)
	r.mark(objects < mostObjects, "%s: %.3f allocations a row, below %.1f", table, objects, mostObjects)
	memory := median(results[ours], func(m *Measured) float64 { return float64(m.Peak) })
	r.mark(memory <= mostMemory, "%s: %.0f MB while it is open, at most %.0f", table, memory/1e6, mostMemory/1e6)
}

func (r *Report) mark(ok bool, format string, args ...any) {
	r.failed = r.failed || !ok
	r.marks = append(r.marks, fmt.Sprintf("- %s: %s", fmt.Sprintf(format, args...), reached(ok)))
}

// reached says whether a mark is.
func reached(ok bool) string {
	if ok {
		return "yes"
	}
	return "**NO**"
}

// Marks writes what must hold.
func (r *Report) Marks() {
	if len(r.marks) == 0 {
		return
	}
	r.printf("\n## What must hold\n\n%s\n", strings.Join(r.marks, "\n"))
}

func best(of []Measured) float64 {
	rates := make([]float64, 0, len(of))
	for i := range of {
		rates = append(rates, of[i].rate())
	}
	return slices.Max(rates)
}

func median(of []Measured, figure func(*Measured) float64) float64 {
	var all []float64
	for i := range of {
		all = append(all, figure(&of[i]))
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	if n := len(all); n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[len(all)/2]
}

func thousands(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.2f M", x/1e6)
	case x >= 1e3:
		return fmt.Sprintf("%.0f k", x/1e3)
	}
	return fmt.Sprintf("%.0f", x)
}

func arrowVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/apache/arrow-go/v18" {
				return m.Version
			}
		}
	}
	return "of an unknown version"
}
