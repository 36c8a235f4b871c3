package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/internal/origin"
)

// cpu scans hosts that are well, each by its name: first plain, then by TLS with certificates that stand up to
// verification. What counts is what the system says of the whole process, from its start to its end; one more run says
// where it went, by the labels of its profile.
func (l *lab) cpu(ctx context.Context) error {
	hosts, real, err := l.hosts(ctx, l.sizes.cpu)
	if err != nil {
		return err
	}
	l.printf("\n## cpu: %d origins (%s), made-up bodies\n\n", len(hosts), kind(real, "real hosts", "made-up hosts"))
	l.printf("CPU seconds of the whole scan, median of %d.\n\n| | CPU s per 10k | origins/s | wall | peak memory |\n|---|---|---|---|---|\n", l.runs)
	marks := []struct {
		scheme origin.Scheme
		most   float64 // CPU seconds per 10,000 origins
		per10k float64
	}{{scheme: origin.HTTP, most: 1.1}, {scheme: origin.HTTPS, most: 6}}
	var shares []tags
	for i := range marks {
		m := &marks[i]
		t, err := l.cpuTrial(hosts, m.scheme)
		if err != nil {
			return err
		}
		var per10k, wall []float64
		var peak int64
		for range l.runs {
			o, err := l.try(ctx, t)
			if err != nil {
				return err
			}
			per10k, wall = append(per10k, o.cpu.Seconds()*10_000/float64(len(hosts))), append(wall, o.wall.Seconds())
			peak = max(peak, o.peak)
		}
		m.per10k = median(per10k)
		l.printf("| %v | %.2f | %.0f | %.1f s | %d MB |\n", m.scheme, m.per10k, float64(len(hosts))/median(wall), median(wall), peak>>20)
		profile := filepath.Join(l.dir, "cpu.prof")
		t.scan = append(t.scan, "--cpuprofile", profile)
		if _, err := l.try(ctx, t); err != nil {
			return err
		}
		found, err := profileTags(ctx, profile)
		if err != nil {
			return err
		}
		shares = append(shares, found)
	}
	for i := range marks {
		l.printf("\nWhere it went by %v, in percent of the profile's samples:\n\n%s", marks[i].scheme, shares[i])
	}
	l.printf("\n")
	for _, m := range marks {
		l.must(m.per10k <= m.most, "by %v at most %.1f CPU s per 10k (%.2f)", m.scheme, m.most, m.per10k)
	}
	l.mustBeTrue()
	return nil
}

func (l *lab) cpuTrial(hosts []string, scheme origin.Scheme) (trial, error) {
	lines := make([]string, len(hosts))
	for i, host := range hosts {
		lines[i] = scheme.String() + "://" + host
	}
	list, err := l.write(fmt.Sprintf("cpu-%v.list", scheme), lines)
	return trial{list: list, web: []string{"--only", "ok"}, trusted: scheme == origin.HTTPS}, err
}

// tags are the labels of a profile's samples, in the order in which pprof tells of them: those with most samples first.
type tags []tag

type tag struct {
	key, value string
	percent    float64 // of all samples
}

var (
	tagKey   = regexp.MustCompile(`^\s*(\S+): Total .* \(\s*(\d+(?:\.\d+)?)%\)$`)
	tagValue = regexp.MustCompile(`^\s*\S+ \(\s*(\d+(?:\.\d+)?)%\): (.*)$`)
)

// profileTags asks pprof for the labels of a profile's samples. Samples without a label of a key, the collector's above
// all, are told as such.
func profileTags(ctx context.Context, path string) (tags, error) {
	c := exec.CommandContext(ctx, "go", "tool", "pprof", "-tags", path)
	var out, stderr bytes.Buffer
	c.Stdout, c.Stderr, c.Env = &out, &stderr, append(os.Environ(), "PPROF_TMPDIR="+filepath.Dir(path))
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("cannot read the profile: %w\n%s", err, stderr.String())
	}
	return parseTags(out.String())
}

func parseTags(text string) (tags, error) {
	var all tags
	key, left := "", 0.0
	end := func() {
		if key != "" && left >= 0.05 {
			all = append(all, tag{key, "without", left})
		}
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), " ")
		if m := tagKey.FindStringSubmatch(line); m != nil {
			end()
			labelled, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				return nil, fmt.Errorf("cannot understand %q of pprof: %w", line, err)
			}
			key, left = m[1], 100-labelled
		} else if m := tagValue.FindStringSubmatch(line); m != nil && key != "" {
			percent, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				return nil, fmt.Errorf("cannot understand %q of pprof: %w", line, err)
			}
			all = append(all, tag{key, m[2], percent})
		}
	}
	end()
	return all, lines.Err()
}

// String is a table.
func (t tags) String() string {
	if len(t) == 0 {
		return "No sample has a label.\n"
	}
	var b strings.Builder
	b.WriteString("| label | value | share |\n|---|---|---|\n")
	for _, tag := range t {
		fmt.Fprintf(&b, "| %s | %s | %.1f %% |\n", tag.key, tag.value, tag.percent)
	}
	return b.String()
}
