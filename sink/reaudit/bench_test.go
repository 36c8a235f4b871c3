//go:build unix

package reaudit

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/internal/sitetest"
	"github.com/bulkscan/bulkscan/sink"
)

// BenchmarkReaudit judges a stored scan of real bodies again: it reads all tables, judges, compares, and writes a
// dataset. It reports bodies per second of processor time, which other work of the machine does not change.
//
//	distinct  every body is another, as each has a line that no other has; nothing differs
//	repeated  the bodies of the corpus come again, four times a part; nothing differs
//	registry  as distinct, by a registry that has one crawler more: nearly every row of sites differs, and some verdicts
//
//	go test ./sink/reaudit -run '^$' -bench Reaudit -benchtime 3x
func BenchmarkReaudit(b *testing.B) {
	bodies := sharedtest.Bodies(b, "typical12k")
	const sites = 2 * sink.DefaultPartRows
	distinct := func(i int) []byte { return fmt.Appendf(nil, "%s\n# %d\n", bodies[i%len(bodies)], i) }
	registry, err := tokens.Load(strings.NewReader(`version 1
name   | aliases | category | purpose  | operator | *   | fallback | source              | checked
MyBot  |         | ai       | training | Me       | yes |          | https://example.org | 2026-01-01
`))
	if err != nil {
		b.Fatal(err)
	}
	for _, bench := range []struct {
		name     string
		body     func(i int) []byte
		registry *tokens.Registry
	}{
		{"distinct", distinct, tokens.Default()},
		{"repeated", func(i int) []byte { return bodies[i%len(bodies)] }, tokens.Default()},
		{"registry", distinct, registry},
	} {
		b.Run(bench.name, func(b *testing.B) {
			to := newDir(b)
			w := mustOpen(b, to, sink.Options{ScanID: "stored"})
			s := sitetest.Typical(b, 0)
			var bytes int64
			for i := range sites {
				s.SetOrigin(sitetest.Origin(b, fmt.Sprintf("host-%x.example%d.com", uint32(i)*2654435761, i%5000)))
				s.Seq, s.Rank, s.Input, s.Fetch.Body = uint64(i), int64(i), s.Origin.Host(), bench.body(i)
				bytes += int64(len(s.Fetch.Body))
				audit.Judge(s)
				if err := w.Add(s); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
			source := mustReadScan(b, to, "stored")
			var spent time.Duration
			b.SetBytes(bytes)
			b.ResetTimer()
			for range b.N {
				begun := processorTime()
				if came := mustScan(b, source, newDir(b),
					byRegistry(bench.registry)); (came.Sites != 0) != (bench.registry == registry) || came.Judged()+
					came.Stayed() != sites {
					b.Fatalf("%+v", came)
				}
				spent += processorTime() - begun
			}
			b.ReportMetric(float64(b.N)*sites/spent.Seconds(), "bodies/s-a-core")
		})
	}
}

// processorTime is the processor time of this process so far, user's and system's, on all threads; 0 if the system does
// not report it.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
