// Package metrics answers one question: what may a monitoring system see of a scan, or of a night? It reads the
// counters of the pipeline and the resolver when metrics are requested, and gives them names and units of Prometheus.
// It counts nothing itself, so that monitoring does not slow down a scan.
//
// metrics.go has the Scan, table.go its metrics, night.go those of a night, server.go the page that Prometheus scrapes,
// and file.go the file that a node_exporter collects. docs/METRICS.md is generated from the table.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/pipeline"
)

// State is the state of a scan, and the value of the label state.
type State string

// The states of a scan.
const (
	Running     State = "running"
	Complete    State = "complete"    // all origins of the list are kept
	Interrupted State = "interrupted" // stopped by a signal; the same command resumes it
	Failed      State = "failed"
)

var scanStates = []State{Running, Complete, Interrupted, Failed}

// Scan has one scan's metrics. It shows zeros until Begin. It is safe for use by many goroutines.
type Scan struct {
	version string
	names   func() resolve.Stats
	start   time.Time

	mu       sync.Mutex
	id       string
	progress *pipeline.Progress
	list     func() (read, total int64)
	state    State
	end      time.Time
}

// New returns a Scan that starts now, by a program of this version. names is called at each collection, by any
// goroutine.
func New(version string, names func() resolve.Stats) *Scan {
	return &Scan{
		version: version, names: names, start: time.Now(), state: Running,
		progress: new(pipeline.Progress), list: func() (read, total int64) { return 0, 0 },
	}
}

// Begin sets the sources of the metrics: the scan's id ("" if it has none), its progress, and list, which returns the
// bytes read and the total bytes of the list (0: unknown).
func (s *Scan) Begin(id string, progress *pipeline.Progress, list func() (read, total int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.progress, s.list = id, progress, list
}

// End sets the scan's final state.
func (s *Scan) End(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.end = state, time.Now()
}

// snapshot holds the values of one collection. While the scan runs, two counts may not be consistent with each other.
type snapshot struct {
	version    string
	id         string
	state      State
	start, end time.Time
	progress   *pipeline.Progress
	read, size int64 // bytes of the list
	names      resolve.Stats
	servers    []resolve.ServerStats // of names, each address once
}

func (s *Scan) snapshot() *snapshot {
	s.mu.Lock()
	now := &snapshot{version: s.version, id: s.id, state: s.state, start: s.start, end: s.end, progress: s.progress}
	list := s.list
	s.mu.Unlock()
	now.read, now.size = list()
	now.names = s.names()
	now.servers = merged(now.names.Servers)
	return now
}

// merged adds up the counts of servers with the same address. A server that is named twice must be one series,
// because Prometheus rejects a page with two series of the same name and labels.
func merged(servers []resolve.ServerStats) []resolve.ServerStats {
	var all []resolve.ServerStats
next:
	for _, s := range servers {
		for i := range all {
			if o := &all[i]; o.Addr == s.Addr {
				o.Questions += s.Questions
				o.Answers += s.Answers
				o.Failures += s.Failures
				o.Unheard += s.Unheard
				o.TCP += s.TCP
				o.Rate += s.Rate
				o.Down = o.Down && s.Down
				continue next
			}
		}
		all = append(all, s)
	}
	return all
}

func (s *Scan) tables() []section { return s.snapshot().table() }

// page returns the metrics of the HTTP page: the scan, the Go runtime and the process.
func (s *Scan) page() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(collector(s.tables), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// alone returns the metrics of the file: only the scan. A node_exporter has metrics of its own runtime and process,
// and fails if a file has the same names.
func (s *Scan) alone() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(collector(s.tables))
	return r
}
