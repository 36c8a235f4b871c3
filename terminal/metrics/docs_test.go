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

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/nightly"
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
		t.Errorf("%s is out of date; go test ./terminal/metrics -update writes it anew", document)
	}
	for _, name := range regexp.MustCompile(`bulkscan_[a-z_]+`).FindAllString(want, -1) {
		if !isMetric(strings.TrimSuffix(name, "_bucket")) {
			t.Errorf("the document has %s, which is no metric", name)
		}
	}
}

// tables returns all tables, of a scan and of a night.
func tables() []section {
	return append(New("", func() resolve.Stats { return resolve.Stats{} }).tables(), nightTable(&nightly.Night{}, nil)...)
}

func isMetric(name string) bool {
	return slices.ContainsFunc(tables(), func(s section) bool {
		return slices.ContainsFunc(s.metrics, func(m metric) bool { return m.name == name })
	})
}

func write() string {
	var b strings.Builder
	b.WriteString(opening)
	for _, section := range tables() {
		fmt.Fprintf(&b, "\n### %s\n\n| metric | type | label | meaning |\n|---|---|---|---|\n", section.title)
		for _, m := range section.metrics {
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
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, kind, strings.Join(labels, ", "), strings.ReplaceAll(m.help, "|",
				`\|`))
		}
	}
	b.WriteString(closing)
	return b.String()
}

const opening = `# Metrics

<!-- Written by ` + "`go test ./terminal/metrics -update`" + ` from the table in terminal/metrics. Do not edit. -->

**By HTTP**, for Prometheus:

` + "`" + `` + "`" + `` + "`" + `sh
bulkscan scan list.csv -o out --metrics-addr 127.0.0.1:9464
curl http://127.0.0.1:9464/metrics
` + "`" + `` + "`" + `` + "`" + `

The address is bound before the scan begins. With port 0 the system chooses, and the log names the port. There is no
password: anyone who reaches the address may read it. The server accepts eight connections at a time and ends with the
scan. It adds metrics of the Go runtime and the process.

**By file**, for the textfile collector of node_exporter:

` + "`" + `` + "`" + `` + "`" + `sh
bulkscan scan list.csv -o out --metrics-file /var/lib/node_exporter/textfile/bulkscan.prom
` + "`" + `` + "`" + `` + "`" + `

The file is replaced atomically at the start, every 15 s and at the end. If it cannot be written, the scan warns and
continues. node_exporter cannot tell apart two scans on a machine; use HTTP for that.

Names are promises: none changes its meaning. No label value comes from sites or name servers. Counters begin at zero
with each run, also when a scan resumes.

## Metrics
`

const closing = `
## Queries and alerts

Origins a second, the share answered, and, once the list is read, the hours left:

` + "```" + `
rate(bulkscan_origins_kept_total[5m])
sum without (outcome) (rate(bulkscan_outcomes_total{outcome="answered"}[5m])) / rate(bulkscan_origins_kept_total[5m])
(bulkscan_origins_fed_total - bulkscan_origins_kept_total) / rate(bulkscan_origins_kept_total[15m]) / 3600
` + "```" + `

The share of look-ups from the cache, and the others' 99th percentile:

` + "```" + `
rate(bulkscan_dns_cache_hits_total[5m]) / rate(bulkscan_dns_lookups_total[5m])
histogram_quantile(0.99, rate(bulkscan_dns_lookup_duration_seconds_bucket[5m]))
` + "```" + `

Alerts:

` + "```yaml" + `
groups:
  - name: bulkscan
    rules:
      - alert: BulkscanLosesNames
        expr: sum without (outcome) (rate(bulkscan_outcomes_total{outcome=~"dns_failed|dns_timeout"}[15m])) > 0.02 * rate(bulkscan_origins_kept_total[15m])
        for: 15m
        annotations: {summary: "More than 2 % of origins fail at a name server: lower --dns-rate."}
      - alert: BulkscanNameServerDown
        expr: bulkscan_dns_server_up == 0
        for: 5m
      - alert: BulkscanStalls
        expr: rate(bulkscan_origins_kept_total[15m]) == 0 and ignoring (state) bulkscan_scan_state{state="running"} == 1
        for: 15m
` + "```" + `

A killed scan leaves a file that grows old:

` + "```" + `
time() - node_textfile_mtime_seconds{file=~".*bulkscan.prom"} > 120 and on (instance) bulkscan_scan_state{state="running"} == 1
` + "```" + `
`
