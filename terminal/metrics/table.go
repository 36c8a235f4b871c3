package metrics

import (
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// metric is one row of the table. Metrics may be added, but a name never changes its meaning. Every label has a
// bounded number of values, which are fixed before the first request: nothing that a site or a name server sends
// becomes a label.
type metric struct {
	section string // of the document, on the first row of each
	name    string
	help    string
	kind    prometheus.ValueType
	labels  []string

	// adds the values; without any the metric is absent
	read      func(s *snapshot, add func(value float64, labels ...string))
	histogram func(d *prometheus.Desc, s *snapshot) prometheus.Metric   // instead of read
	night     func(n *Night, add func(value float64, labels ...string)) // instead of read, in nightTable

	desc *prometheus.Desc
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// table lists all metrics in the order of docs/METRICS.md.
var table = described([]metric{
	{section: "The scan",
		name: "bulkscan_build_info", kind: gauge, labels: []string{"version", "go_version"},
		help: "Always 1; names the version.",
		read: func(s *snapshot, add func(float64, ...string)) { add(1, valid(s.version), runtime.Version()) }},
	{name: "bulkscan_scan_info", kind: gauge, labels: []string{"scan_id"},
		help: "Always 1; names the scan, once lists are opened.",
		read: func(s *snapshot, add func(float64, ...string)) {
			if s.id != "" {
				add(1, valid(s.id))
			}
		}},
	{name: "bulkscan_scan_state", kind: gauge, labels: []string{"state"},
		help: "1 for the scan's state, else 0: running, complete, interrupted, failed.",
		read: func(s *snapshot, add func(float64, ...string)) {
			for state := range numStates {
				add(truth(s.state == state), state.String())
			}
		}},
	{name: "bulkscan_scan_start_time_seconds", kind: gauge,
		help: "When this run started, in seconds since 1970.",
		read: func(s *snapshot, add func(float64, ...string)) { add(unix(s.start)) }},
	{name: "bulkscan_scan_end_time_seconds", kind: gauge,
		help: "When this run ended, in seconds since 1970. Absent while it runs.",
		read: func(s *snapshot, add func(float64, ...string)) {
			if !s.end.IsZero() {
				add(unix(s.end))
			}
		}},

	{section: "The list",
		name: "bulkscan_list_read_bytes_total", kind: counter,
		help: "Bytes read of the lists, as stored.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.read)) }},
	{name: "bulkscan_list_size_bytes", kind: gauge,
		help: "Bytes of all lists, as stored. Absent if unknown.",
		read: func(s *snapshot, add func(float64, ...string)) {
			if s.size > 0 {
				add(float64(s.size))
			}
		}},
	{name: "bulkscan_list_done", kind: gauge,
		help: "1 once the lists are read to their end.",
		read: func(s *snapshot, add func(float64, ...string)) { add(truth(s.progress.ListDone())) }},

	{section: "Origins",
		name: "bulkscan_origins_fed_total", kind: counter,
		help: "Origins taken from the list.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.progress.Fed.Load())) }},
	{name: "bulkscan_origins_skipped_total", kind: counter,
		help: "Origins that an earlier run of the scan kept.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.progress.Skipped.Load())) }},
	{name: "bulkscan_origins_kept_total", kind: counter,
		help: "Origins in the dataset or on standard output.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.progress.Kept.Load())) }},
	{name: "bulkscan_outcomes_total", kind: counter, labels: []string{"outcome"},
		help: "Origins kept, by outcome (docs/outcomes.md).",
		read: func(s *snapshot, add func(float64, ...string)) {
			for _, outcome := range exchange.Outcomes() {
				add(float64(s.progress.Outcomes[outcome].Load()), outcome.String())
			}
		}},
	{name: "bulkscan_statuses_total", kind: counter, labels: []string{"class"},
		help: "Origins kept, by class of the last HTTP status: 1xx to 5xx, or none.",
		read: func(s *snapshot, add func(float64, ...string)) {
			for class := range s.progress.Statuses {
				name := "none"
				if class > 0 {
					name = strconv.Itoa(class) + "xx"
				}
				add(float64(s.progress.Statuses[class].Load()), name)
			}
		}},
	{name: "bulkscan_body_bytes_total", kind: counter,
		help: "Bytes of bodies kept, decoded.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.progress.Bytes.Load())) }},
	{name: "bulkscan_origins_waiting", kind: gauge, labels: []string{"place"},
		help: "Origins waiting for a turn, an address or a retry.",
		read: func(s *snapshot, add func(float64, ...string)) {
			add(float64(s.progress.Waiting.Load()), "memory")
			add(float64(s.progress.Spilled.Load()), "file")
		}},
	{name: "bulkscan_origins_silent", kind: gauge,
		help: "Origins whose exchange or look-up takes longer than others, beside --concurrency.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.progress.Silent.Load())) }},
	{name: "bulkscan_origins_asleep", kind: gauge,
		help: "Origins in memory whose retry is not due.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.progress.Asleep.Load())) }},

	{section: "Exchanges",
		name: "bulkscan_exchanges_redirected_total", kind: counter,
		help: "Exchanges followed by a redirect hop.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.progress.Redirects.Load())) }},
	{name: "bulkscan_exchanges_retried_total", kind: counter,
		help: "Exchanges followed by a retry or another address.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.progress.Retries.Load())) }},
	{name: "bulkscan_exchanges_throttled_total", kind: counter,
		help: "Answers of 429, or 503 with Retry-After.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.progress.Throttled.Load())) }},
	{name: "bulkscan_exchanges_spoilt_total", kind: counter,
		help: "Exchanges and look-ups repeated after a stall of this process.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.progress.Spoilt.Load())) }},
	{name: "bulkscan_standstills_total", kind: counter,
		help: "Stalls of this process of more than a second.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.progress.Stalls.Load())) }},

	{section: "Names",
		name: "bulkscan_dns_lookups_in_flight", kind: gauge,
		help: "Look-ups in flight.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.progress.Lookups.Load())) }},
	{name: "bulkscan_dns_lookups_total", kind: counter,
		help: "Look-ups, without those that this machine answers itself.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.names.Lookups)) }},
	{name: "bulkscan_dns_cache_hits_total", kind: counter,
		help: "Look-ups answered from the cache.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.names.CacheHits)) }},
	{name: "bulkscan_dns_shared_lookups_total", kind: counter,
		help: "Look-ups answered by another in flight.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.names.Shared)) }},
	{name: "bulkscan_dns_stray_packets_total", kind: counter,
		help: "Packets that answer no question.",
		read: func(s *snapshot, add func(float64, ...string)) { add(float64(s.names.Strangers)) }},
	{name: "bulkscan_dns_lookup_duration_seconds",
		help: "Duration of look-ups, without waits for --dns-rate.",
		histogram: func(d *prometheus.Desc, s *snapshot) prometheus.Metric {
			// Buckets are cumulative.
			buckets, count := make(map[float64]uint64, len(resolve.TookBounds)), uint64(0)
			for i, bound := range resolve.TookBounds {
				count += s.names.Took[i]
				buckets[bound.Seconds()] = count
			}
			count += s.names.Took[len(resolve.TookBounds)]
			return prometheus.MustNewConstHistogram(d, count, s.names.TookSum.Seconds(), buckets)
		}},
	{name: "bulkscan_dns_questions_total", kind: counter, labels: byServer,
		help: "Questions sent, repetitions included.",
		read: ofServers(func(s *resolve.ServerStats) float64 { return float64(s.Questions) })},
	{name: "bulkscan_dns_answers_total", kind: counter, labels: byServer,
		help: "Answers, failures included.",
		read: ofServers(func(s *resolve.ServerStats) float64 { return float64(s.Answers) })},
	{name: "bulkscan_dns_failures_total", kind: counter, labels: byServer,
		help: "SERVFAIL, REFUSED, malformed answers and failures of TCP.",
		read: ofServers(func(s *resolve.ServerStats) float64 { return float64(s.Failures) })},
	{name: "bulkscan_dns_unheard_total", kind: counter, labels: byServer,
		help: "Questions without an answer.",
		read: ofServers(func(s *resolve.ServerStats) float64 { return float64(s.Unheard) })},
	{name: "bulkscan_dns_tcp_questions_total", kind: counter, labels: byServer,
		help: "Questions repeated by TCP after a truncated answer.",
		read: ofServers(func(s *resolve.ServerStats) float64 { return float64(s.TCP) })},
	{name: "bulkscan_dns_server_rate", kind: gauge, labels: byServer,
		help: "Most questions a second, by --dns-rate or after refusals; +Inf: no limit.",
		read: ofServers(func(s *resolve.ServerStats) float64 { return s.Rate })},
	{name: "bulkscan_dns_server_up", kind: gauge, labels: byServer,
		help: "0 while a name server is down, else 1.",
		read: ofServers(func(s *resolve.ServerStats) float64 { return truth(!s.Down) })},
})

// byServer is the label of metrics of single name servers: those of --resolver, or of the system.
var byServer = []string{"server"}

func ofServers(value func(*resolve.ServerStats) float64) func(*snapshot, func(float64, ...string)) {
	return func(s *snapshot, add func(float64, ...string)) {
		for i := range s.servers {
			add(value(&s.servers[i]), valid(s.servers[i].Addr.String()))
		}
	}
}

// described sets each row's descriptor for Prometheus.
func described(rows []metric) []metric {
	for i := range rows {
		rows[i].desc = prometheus.NewDesc(rows[i].name, rows[i].help, rows[i].labels, nil)
	}
	return rows
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// valid returns a text from the user as the value of a label, which must be UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
