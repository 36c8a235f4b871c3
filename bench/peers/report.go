package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/bench/facts"
)

// Report is a Markdown document that is written as the results come in.
type Report struct {
	out    io.Writer
	pack   string // that is being measured
	temoto Ratio  // the least of each so far, zero for none yet
	where  string // the best passes' ratio was least
	differ int    // of our decisions from Google's, -1 if they were not compared
	failed bool
}

func (r *Report) printf(format string, args ...any) { fmt.Fprintf(r.out, format, args...) }

// Head says what was compared, where and how.
func (r *Report) Head(now time.Time, plan Plan, command string) {
	r.differ = -1
	r.printf("# The parser and its peers, %s\n\n", now.UTC().Format(time.DateOnly))
	r.printf("%s %s/%s, %d processors, %s%s. Made by `%s`.\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), facts.Processor(), load(), command)
	r.printf("| parser | version | how it is asked |\n|---|---|---|\n")
	for _, peer := range append([]Peer{bulkscan, lineLoop}, peers...) {
		r.printf("| %s | %s | %s |\n", peer.Name, version(peer), peer.Way)
	}
	r.printf(`
One goroutine on one processor, which also collects its garbage. A figure is of one pass over all files of a pack, by the
best of up to %d turns; ours comes right before each of the others'. The ratios say how many times as long as ours a parser
takes: by the best passes of both, and by rounds, each pass and ours right before it, the median and the least. A
parser that would take more than %v for its turns had fewer.
`, plan.Rounds, plan.Budget)
}

// Pack begins the tables of a pack.
func (r *Report) Pack(pack Pack) {
	r.pack = pack.Name
	r.printf("\n## %s: %d files, %.1f MB\n", pack.Name, len(pack.Bodies), float64(pack.Size)/1e6)
}

// Speed writes the table of a workload: our own result first, the line loop's second.
func (r *Report) Speed(load Workload, results []Result) {
	r.printf("\n### %s\n\n", strings.ToUpper(load.Name[:1])+load.Name[1:])
	r.printf("| | MB/s | MB/s, median | of the line loop | allocations a file | times our time | median | least | turns |\n")
	r.printf("|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	lines := results[1].Best()
	for i := range results {
		result := &results[i]
		best := result.Best()
		r.printf("| %s | %s | %s | %s %% | %s |", result.Name, digits(result.Rate(best)), digits(result.Rate(median(result.Times))),
			digits(100*float64(lines)/float64(best)), digits(result.Allocations))
		if i == 0 {
			r.printf(" | | | %d |\n", len(result.Times))
			continue
		}
		ratio := result.Ratio()
		r.printf(" %s | %s | %s | %d |\n", digits(ratio.Best), digits(ratio.Median), digits(ratio.Min), len(result.Times))
		if result.Name == temotoName {
			r.noteTemoto(ratio, load)
		}
	}
	for _, result := range results {
		if result.Panics > 0 {
			r.printf("\n%s panics on %d of the files, which are left there.\n", result.Name, result.Panics)
		}
	}
}

func (r *Report) noteTemoto(ratio Ratio, load Workload) {
	if r.where == "" || ratio.Best < r.temoto.Best {
		r.where = r.pack + ", " + load.Name
	}
	if r.temoto == (Ratio{}) {
		r.temoto = ratio
	}
	r.temoto = Ratio{min(r.temoto.Best, ratio.Best), min(r.temoto.Median, ratio.Median), min(r.temoto.Min, ratio.Min)}
}

// Truth writes who agrees with Google.
func (r *Report) Truth(packs []string, scores []Score) {
	s := &scores[0]
	r.differ = s.Decisions - s.Answered()*(s.Decisions/s.Files) + s.Differ
	r.printf("\n## Who agrees with Google\n\n")
	r.printf("Decisions of Google's open-source matcher on the %d files of %s, %d for each file: %d. A file that a parser refuses, panics\n"+
		"on or thinks about for more than %v has no decisions; agreement is the share of all.\n\n",
		s.Files, strings.Join(packs, " and "), s.Decisions/s.Files, s.Decisions, maxTime)
	r.printf("| | agreement | decisions that differ | files answered and all the same | files that differ | refused | panics | too late |\n")
	r.printf("|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for i := range scores {
		s := &scores[i]
		r.printf("| %s | %s | %d | %d | %d | %d | %d | %d |\n", s.Name, percent(s.Agreement()), s.Differ, s.Agreeing,
			s.Answered()-s.Agreeing, s.Refused, s.Panicked, s.Late)
	}
}

// Claims says whether what must hold does. Of made-up files nothing is claimed.
func (r *Report) Claims(found bool) {
	r.printf("\n## What must hold\n\n")
	if !found {
		r.printf("Nothing is claimed of made-up files.\n")
		return
	}
	if r.where != "" {
		r.must(r.temoto.Best >= MinTimesTemoto, "at least %d times as fast as %s on every pack with every workload, best pass against best (least: %s, %s; the least median by rounds is %s, the least round %s)",
			MinTimesTemoto, temotoName, digits(r.temoto.Best), r.where, digits(r.temoto.Median), digits(r.temoto.Min))
	}
	if r.differ >= 0 {
		r.must(r.differ == 0, "every decision is Google's (%d are not)", r.differ)
	}
}

func (r *Report) must(ok bool, format string, args ...any) {
	mark := "yes"
	if !ok {
		mark, r.failed = "**NO**", true
	}
	r.printf("- %s: %s\n", fmt.Sprintf(format, args...), mark)
}

// digits spells a number with three digits, or more where it is large.
func digits(x float64) string {
	switch {
	case x < 0.005:
		return "0"
	case x < 9.995:
		return fmt.Sprintf("%.2f", x)
	case x < 99.95:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// percent spells a share so that only the whole is 100 %.
func percent(share float64) string {
	if share == 1 {
		return "100 %"
	}
	return fmt.Sprintf("%.4f %%", math.Floor(share*1e6)/1e4)
}

// version returns what the build knows of a peer's module, and of our own, which the build takes from beside it, what git
// does.
func version(peer Peer) string {
	switch peer.Module {
	case "":
		return "–"
	case bulkscan.Module:
		out, err := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(out))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == peer.Module {
				return module.Version
			}
		}
	}
	return "unknown"
}

// load says how busy the machine was before, where it tells.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	last, _, _ := strings.Cut(string(data), " ")
	return ", load " + last + " at the start"
}
