package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Night is how the last night stands, for WriteNight. Numbers of a night without figures are 0.
type Night struct {
	Date, ScanID  string
	State         string
	Start, End    time.Time // End is zero while it runs
	Published     time.Time // when the last published night ended; zero: none has
	PruneFailed   bool      // after that one
	Sites, Silent int64
	Rules, Blocks int64
	Out           int   // figures out of bounds
	Bytes         int64 // of the scan's files
}

// NightStates are the values of the label state of bulkscan_night_state.
var NightStates = []string{"running", "published", "held", "discarded", "incomplete", "failed"}

// nightTable lists the metrics of a night, as table does those of a scan.
var nightTable = described([]metric{
	{section: "The night (`bulkscan nightly --metrics-file`)",
		name: "bulkscan_night_info", kind: gauge, labels: []string{"date", "scan_id"},
		help:  "Always 1; names the last night.",
		night: func(n *Night, add func(float64, ...string)) { add(1, valid(n.Date), valid(n.ScanID)) }},
	{name: "bulkscan_night_state", kind: gauge, labels: []string{"state"},
		help: "1 for the night's state, else 0: running, published, held, discarded, incomplete, failed.",
		night: func(n *Night, add func(float64, ...string)) {
			for _, state := range NightStates {
				add(truth(n.State == state), state)
			}
		}},
	{name: "bulkscan_night_start_time_seconds", kind: gauge,
		help:  "When the night began, in seconds since 1970.",
		night: func(n *Night, add func(float64, ...string)) { add(unix(n.Start)) }},
	{name: "bulkscan_night_end_time_seconds", kind: gauge,
		help: "When the night ended, in seconds since 1970. Absent while it runs.",
		night: func(n *Night, add func(float64, ...string)) {
			if !n.End.IsZero() {
				add(unix(n.End))
			}
		}},
	{name: "bulkscan_night_last_published_time_seconds", kind: gauge,
		help: "When the last published night ended, in seconds since 1970. Absent without one.",
		night: func(n *Night, add func(float64, ...string)) {
			if !n.Published.IsZero() {
				add(unix(n.Published))
			}
		}},
	{name: "bulkscan_night_prune_failed", kind: gauge,
		help:  "1 if what is too old could not be deleted after the last published night, else 0.",
		night: func(n *Night, add func(float64, ...string)) { add(truth(n.PruneFailed)) }},
	{name: "bulkscan_night_sites", kind: gauge,
		help:  "Sites of the night.",
		night: func(n *Night, add func(float64, ...string)) { add(float64(n.Sites)) }},
	{name: "bulkscan_night_sites_silent", kind: gauge,
		help:  "Of these, sites of which nothing was learned.",
		night: func(n *Night, add func(float64, ...string)) { add(float64(n.Silent)) }},
	{name: "bulkscan_night_sites_rules", kind: gauge,
		help:  "Sites with rules.",
		night: func(n *Night, add func(float64, ...string)) { add(float64(n.Rules)) }},
	{name: "bulkscan_night_sites_blocking", kind: gauge,
		help:  "Of these, sites that block a token of the registry.",
		night: func(n *Night, add func(float64, ...string)) { add(float64(n.Blocks)) }},
	{name: "bulkscan_night_figures_out_of_bounds", kind: gauge,
		help:  "Figures by which the night is unlike those before it.",
		night: func(n *Night, add func(float64, ...string)) { add(float64(n.Out)) }},
	{name: "bulkscan_night_bytes", kind: gauge,
		help:  "Bytes of the night's parts.",
		night: func(n *Night, add func(float64, ...string)) { add(float64(n.Bytes)) }},
})

// WriteNight writes the metrics of a night to a file for the textfile collector of a node_exporter, which never sees a
// part of it.
func WriteNight(path string, n *Night) error {
	r := prometheus.NewRegistry()
	r.MustRegister(nightCollector{n})
	return prometheus.WriteToTextfile(path, r)
}

type nightCollector struct{ *Night }

// Describe implements prometheus.Collector.
func (c nightCollector) Describe(descs chan<- *prometheus.Desc) {
	for i := range nightTable {
		descs <- nightTable[i].desc
	}
}

// Collect implements prometheus.Collector.
func (c nightCollector) Collect(metrics chan<- prometheus.Metric) {
	for i := range nightTable {
		m := &nightTable[i]
		m.night(c.Night, func(value float64, labels ...string) {
			metrics <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
		})
	}
}
