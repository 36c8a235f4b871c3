package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bulkscan/bulkscan/nightly"
)

// nightStates are the values of the label state of bulkscan_night_state.
var nightStates = []nightly.State{nightly.Running, nightly.Published, nightly.Held, nightly.Discarded,
	nightly.Incomplete, nightly.Failed}

// nightTable lists the metrics of a night, the last one of nights. Numbers of a night without figures are 0.
func nightTable(n *nightly.Night, nights []*nightly.Night) []section {
	f, ended, published, pruneFailed := &nightly.Figures{}, 0.0, 0.0, false
	if n.Figures != nil {
		f = n.Figures
	}
	if n.EndedAt != nil {
		ended = unix(*n.EndedAt)
	}
	for _, other := range nights {
		if other.State == nightly.Published && other.EndedAt != nil {
			// no other error leaves a night published
			published, pruneFailed = unix(*other.EndedAt), other.Error+other.PruneError != ""
		}
	}
	return []section{{"The night (`bulkscan nightly --metrics-file`)", []metric{
		{name: "bulkscan_night_info", help: "Always 1; names the last night.", kind: gauge,
			labels: []string{"date", "scan_id"}, samples: []sample{{1, []string{valid(n.Date), valid(n.ScanID)}}}},
		states("bulkscan_night_state",
			"1 for the night's state, else 0: running, published, held, discarded, incomplete, failed.", n.State, nightStates),
		single(gauge, "bulkscan_night_start_time_seconds", "When the night began, in seconds since 1970.",
			unix(n.StartedAt)),
		single(gauge, "bulkscan_night_end_time_seconds",
			"When the night ended, in seconds since 1970. Absent while it runs.", ended).unless(n.EndedAt == nil),
		single(gauge, "bulkscan_night_last_published_time_seconds",
			"When the last published night ended, in seconds since 1970. Absent without one.",
			published).unless(published == 0),
		single(gauge, "bulkscan_night_prune_failed",
			"1 if what is too old could not be deleted after the last published night, else 0.", truth(pruneFailed)),
		single(gauge, "bulkscan_night_sites", "Sites of the night.", f.Sites),
		single(gauge, "bulkscan_night_sites_silent", "Of these, sites of which nothing was learned.", f.Silent()),
		single(gauge, "bulkscan_night_sites_rules", "Sites with rules.", f.Rules),
		single(gauge, "bulkscan_night_sites_blocking", "Of these, sites that block a token of the registry.", f.Blocked),
		single(gauge, "bulkscan_night_figures_out_of_bounds", "Figures by which the night is unlike those before it.",
			len(n.Out)),
		single(gauge, "bulkscan_night_bytes", "Bytes of the night's parts.", n.Bytes),
	}}}
}

// WriteNight writes the metrics of a night, the last one of nights, to a file for the textfile collector of a
// node_exporter, which never sees a part of it.
func WriteNight(path string, n *nightly.Night, nights []*nightly.Night) error {
	r := prometheus.NewRegistry()
	r.MustRegister(collector(func() []section { return nightTable(n, nights) }))
	return prometheus.WriteToTextfile(path, r)
}
