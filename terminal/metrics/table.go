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

// metric is one row of a table, with its values now. Metrics may be added, but a name never changes its meaning. Every
// label has a bounded number of values, which are fixed before the first request: nothing that a site or a name server
// sends becomes a label.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	samples    []sample                                 // without any the metric is absent
	histogram  func(*prometheus.Desc) prometheus.Metric // instead of samples
}

// sample is a value with those of the labels.
type sample struct {
	value  float64
	labels []string
}

// section is a table of docs/METRICS.md.
type section struct {
	title   string
	metrics []metric
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// single is a metric of one value.
func single[N int | int64 | uint64 | float64](kind prometheus.ValueType, name, help string, value N) metric {
	return metric{name: name, help: help, kind: kind, samples: []sample{{value: float64(value)}}}
}

// unless makes a metric absent.
func (m metric) unless(absent bool) metric {
	if absent {
		m.samples = nil
	}
	return m
}

// by is a metric of one value for each value of a label.
func by(label string, kind prometheus.ValueType, name, help string, samples ...sample) metric {
	return metric{name: name, help: help, kind: kind, labels: []string{label}, samples: samples}
}

// states is a metric that is 1 for the state that something is in.
func states[S ~string](name, help string, now S, all []S) metric {
	m := by("state", gauge, name, help)
	for _, state := range all {
		m.samples = append(m.samples, sample{truth(state == now), []string{string(state)}})
	}
	return m
}

// table lists all metrics of a scan in the order of docs/METRICS.md.
func (s *snapshot) table() []section {
	p, names := s.progress, &s.names
	outcomes := by("outcome", counter, "bulkscan_outcomes_total", "Origins kept, by outcome (docs/outcomes.md).")
	for _, outcome := range exchange.Outcomes() {
		outcomes.samples = append(outcomes.samples, sample{float64(p.Outcomes[outcome].Load()), []string{outcome.String()}})
	}
	statuses := by("class", counter, "bulkscan_statuses_total",
		"Origins kept, by class of the last HTTP status: 1xx to 5xx, or none.")
	for class := range p.Statuses {
		name := "none"
		if class > 0 {
			name = strconv.Itoa(class) + "xx"
		}
		statuses.samples = append(statuses.samples, sample{float64(p.Statuses[class].Load()), []string{name}})
	}
	return []section{
		{"The scan", []metric{
			{name: "bulkscan_build_info", help: "Always 1; names the version.", kind: gauge,
				labels: []string{"version", "go_version"}, samples: []sample{{1, []string{valid(s.version), runtime.Version()}}}},
			by("scan_id", gauge, "bulkscan_scan_info", "Always 1; names the scan, once lists are opened.",
				sample{1, []string{valid(s.id)}}).unless(s.id == ""),
			states("bulkscan_scan_state", "1 for the scan's state, else 0: running, complete, interrupted, failed.",
				s.state, scanStates),
			single(gauge, "bulkscan_scan_start_time_seconds", "When this run started, in seconds since 1970.", unix(s.start)),
			single(gauge, "bulkscan_scan_end_time_seconds",
				"When this run ended, in seconds since 1970. Absent while it runs.", unix(s.end)).unless(s.end.IsZero()),
		}},
		{"The list", []metric{
			single(counter, "bulkscan_list_read_bytes_total", "Bytes read of the lists, as stored.", s.read),
			single(gauge, "bulkscan_list_size_bytes", "Bytes of all lists, as stored. Absent if unknown.",
				s.size).unless(s.size <= 0),
			single(gauge, "bulkscan_list_done", "1 once the lists are read to their end.", truth(p.ListDone())),
		}},
		{"Origins", []metric{
			single(counter, "bulkscan_origins_fed_total", "Origins taken from the list.", p.Fed.Load()),
			single(counter, "bulkscan_origins_skipped_total", "Origins that an earlier run of the scan kept.",
				p.Skipped.Load()),
			single(counter, "bulkscan_origins_kept_total", "Origins in the dataset or on standard output.", p.Kept.Load()),
			outcomes,
			statuses,
			single(counter, "bulkscan_body_bytes_total", "Bytes of bodies kept, decoded.", p.Bytes.Load()),
			by("place", gauge, "bulkscan_origins_waiting", "Origins waiting for a turn, an address or a retry.",
				sample{float64(p.Waiting.Load()), []string{"memory"}}, sample{float64(p.Spilled.Load()), []string{"file"}}),
			single(gauge, "bulkscan_origins_silent",
				"Origins whose exchange or look-up takes longer than others, beside --concurrency.", p.Silent.Load()),
			single(gauge, "bulkscan_origins_asleep", "Origins in memory whose retry is not due.", p.Asleep.Load()),
		}},
		{"Exchanges", []metric{
			single(counter, "bulkscan_exchanges_redirected_total", "Exchanges followed by a redirect hop.",
				p.Redirects.Load()),
			single(counter, "bulkscan_exchanges_retried_total", "Exchanges followed by a retry or another address.",
				p.Retries.Load()),
			single(counter, "bulkscan_exchanges_throttled_total", "Answers of 429, or 503 with Retry-After.",
				p.Throttled.Load()),
			single(counter, "bulkscan_exchanges_spoilt_total",
				"Exchanges and look-ups repeated after a stall of this process.", p.Spoilt.Load()),
			single(counter, "bulkscan_standstills_total", "Stalls of this process of more than a second.", p.Stalls.Load()),
		}},
		{"Names", []metric{
			single(gauge, "bulkscan_dns_lookups_in_flight", "Look-ups in flight.", p.Lookups.Load()),
			single(counter, "bulkscan_dns_lookups_total", "Look-ups, without those that this machine answers itself.",
				names.Lookups),
			single(counter, "bulkscan_dns_cache_hits_total", "Look-ups answered from the cache.", names.CacheHits),
			single(counter, "bulkscan_dns_shared_lookups_total", "Look-ups answered by another in flight.", names.Shared),
			single(counter, "bulkscan_dns_stray_packets_total", "Packets that answer no question.", names.Strangers),
			{name: "bulkscan_dns_lookup_duration_seconds", help: "Duration of look-ups, without waits for --dns-rate.",
				histogram: func(d *prometheus.Desc) prometheus.Metric { return tookHistogram(d, names) }},
			s.byServer(counter, "bulkscan_dns_questions_total", "Questions sent, repetitions included.",
				func(s *resolve.ServerStats) float64 { return float64(s.Questions) }),
			s.byServer(counter, "bulkscan_dns_answers_total", "Answers, failures included.",
				func(s *resolve.ServerStats) float64 { return float64(s.Answers) }),
			s.byServer(counter, "bulkscan_dns_failures_total",
				"SERVFAIL, REFUSED, malformed answers and failures of TCP.",
				func(s *resolve.ServerStats) float64 { return float64(s.Failures) }),
			s.byServer(counter, "bulkscan_dns_unheard_total", "Questions without an answer.",
				func(s *resolve.ServerStats) float64 { return float64(s.Unheard) }),
			s.byServer(counter, "bulkscan_dns_tcp_questions_total", "Questions repeated by TCP after a truncated answer.",
				func(s *resolve.ServerStats) float64 { return float64(s.TCP) }),
			s.byServer(gauge, "bulkscan_dns_server_rate",
				"Most questions a second, by --dns-rate or after refusals; +Inf: no limit.",
				func(s *resolve.ServerStats) float64 { return s.Rate }),
			s.byServer(gauge, "bulkscan_dns_server_up", "0 while a name server is down, else 1.",
				func(s *resolve.ServerStats) float64 { return truth(!s.Down) }),
		}},
	}
}

// byServer is a metric of single name servers: those of --resolver, or of the system.
func (s *snapshot) byServer(kind prometheus.ValueType, name, help string,
	value func(*resolve.ServerStats) float64) metric {
	m := by("server", kind, name, help)
	for i := range s.servers {
		m.samples = append(m.samples, sample{value(&s.servers[i]), []string{valid(s.servers[i].Addr.String())}})
	}
	return m
}

// tookHistogram has cumulative buckets of the durations of look-ups.
func tookHistogram(d *prometheus.Desc, names *resolve.Stats) prometheus.Metric {
	buckets, count := make(map[float64]uint64, len(resolve.TookBounds)), uint64(0)
	for i, bound := range resolve.TookBounds {
		count += names.Took[i]
		buckets[bound.Seconds()] = count
	}
	count += names.Took[len(resolve.TookBounds)]
	return prometheus.MustNewConstHistogram(d, count, names.TookSum.Seconds(), buckets)
}

// collector is a prometheus.Collector of tables.
type collector func() []section

// each calls do for each metric now.
func (c collector) each(do func(m *metric, desc *prometheus.Desc)) {
	for _, section := range c() {
		for i := range section.metrics {
			m := &section.metrics[i]
			do(m, prometheus.NewDesc(m.name, m.help, m.labels, nil))
		}
	}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(descs chan<- *prometheus.Desc) {
	c.each(func(_ *metric, desc *prometheus.Desc) { descs <- desc })
}

// Collect implements prometheus.Collector.
func (c collector) Collect(metrics chan<- prometheus.Metric) {
	c.each(func(m *metric, desc *prometheus.Desc) {
		if m.histogram != nil {
			metrics <- m.histogram(desc)
		}
		for _, s := range m.samples {
			metrics <- prometheus.MustNewConstMetric(desc, m.kind, s.value, s.labels...)
		}
	})
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
