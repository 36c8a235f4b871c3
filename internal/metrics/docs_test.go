package metrics

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

var update = flag.Bool("update", false, "write docs/METRICS.md")

const document = "../../docs/METRICS.md"

// TestDocument compares docs/METRICS.md with the table. Each must have every metric of the other.
func TestDocument(t *testing.T) {
	want := write()
	if *update {
		if err := os.WriteFile(document, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, document); got != want {
		t.Errorf("%s is out of date; go test ./internal/metrics -update writes it anew", document)
	}
	for _, name := range regexp.MustCompile(`bulkscan_[a-z_]+`).FindAllString(want, -1) {
		if !slices.ContainsFunc(table, func(m metric) bool { return m.name == strings.TrimSuffix(name, "_bucket") }) {
			t.Errorf("the document has %s, which is no metric", name)
		}
	}
}

func write() string {
	var b strings.Builder
	b.WriteString(opening)
	for i := range table {
		m := &table[i]
		if m.section != "" {
			fmt.Fprintf(&b, "\n### %s\n\n| metric | type | label | meaning |\n|---|---|---|---|\n", m.section)
		}
		kind := "gauge"
		switch {
		case m.histogram != nil:
			kind = "histogram"
		case m.kind == prometheus.CounterValue:
			kind = "counter"
		}
		var labels []string
		for _, label := range m.labels {
			labels = append(labels, "`"+label+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, kind, strings.Join(labels, ", "), strings.ReplaceAll(m.help, "|", `\|`))
	}
	b.WriteString(closing)
	return b.String()
}

const opening = `# Metrics

<!-- Written by ` + "`go test ./internal/metrics -update`" + ` from the table in internal/metrics. Do not edit. -->

A scan can be watched while it runs. It counts the same whether anybody looks or not: a metric is read when it is asked for.

**By HTTP**, for a Prometheus that scrapes it:

` + "```" + `
bulkscan scan list.csv -o out --metrics-addr 127.0.0.1:9464
curl http://127.0.0.1:9464/metrics
` + "```" + `

The address is taken before anything is asked; one that is in use is an error. With port 0 the system chooses, and the log
says what. Whoever reaches the address may read it: there is no password, and there is no way to change anything. The server
takes eight connections at a time, and ends with the scan. Beside what follows, the page has the client library's metrics of the Go runtime (` + "`go_…`" + `) and of the process
(` + "`process_…`" + `: processor time, memory, open files).

**By file**, for the textfile collector of a node_exporter, where scans come and go:

` + "```" + `
bulkscan scan list.csv -o out --metrics-file /var/lib/node_exporter/textfile/bulkscan.prom
` + "```" + `

It is replaced as a whole, at the start, every 15 s, and at the end, and stays there: it then says how the scan ended. Two scans at
a time need two files, and then their metrics collide, since a node_exporter knows no scan from another; use the page for that. A
file that cannot be written is warned about, and the scan goes on. Runtime and process are left out, because a node_exporter has
metrics of these names itself and would refuse the file.

Names are promises: there may be more one day, but none changes its meaning. No label takes its values from what sites or name
servers send. Counters begin at zero with each run, also of a scan that resumes; ` + "`rate()`" + ` and ` + "`increase()`" + ` know that.

## What there is
`

const closing = `
## Questions and alarms

How many origins a second, which share of them answered, and how long it will take (in hours, once the list is read):

` + "```" + `
rate(bulkscan_origins_kept_total[5m])
sum without (outcome) (rate(bulkscan_outcomes_total{outcome="answered"}[5m])) / rate(bulkscan_origins_kept_total[5m])
(bulkscan_origins_fed_total - bulkscan_origins_kept_total) / rate(bulkscan_origins_kept_total[15m]) / 3600
` + "```" + `

Of look-ups, how many the cache spares, and how long those take that it does not, for 99 of 100:

` + "```" + `
rate(bulkscan_dns_cache_hits_total[5m]) / rate(bulkscan_dns_lookups_total[5m])
histogram_quantile(0.99, rate(bulkscan_dns_lookup_duration_seconds_bucket[5m]))
` + "```" + `

Alarms, as rules of a Prometheus: names get lost, a name server keeps silent, nothing is finished any more.

` + "```yaml" + `
groups:
  - name: bulkscan
    rules:
      - alert: BulkscanLosesNames
        expr: sum without (outcome) (rate(bulkscan_outcomes_total{outcome=~"dns_failed|dns_timeout"}[15m])) > 0.02 * rate(bulkscan_origins_kept_total[15m])
        for: 15m
        annotations: {summary: "More than 2 % of the origins end for want of a name server: lower --dns-rate, or name others by --resolver."}
      - alert: BulkscanNameServerDown
        expr: bulkscan_dns_server_up == 0
        for: 5m
      - alert: BulkscanStalls
        expr: rate(bulkscan_origins_kept_total[15m]) == 0 and ignoring (state) bulkscan_scan_state{state="running"} == 1
        for: 15m
` + "```" + `

A scan that was killed has no page any more, which Prometheus knows as ` + "`up == 0`" + `; its file goes on saying that it runs, and
grows old:

` + "```" + `
time() - node_textfile_mtime_seconds{file=~".*bulkscan.prom"} > 120 and on (instance) bulkscan_scan_state{state="running"} == 1
` + "```" + `
`
