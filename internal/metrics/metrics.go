// Package metrics answers one question: what may a monitoring system see of a scan? It reads the counters that the pipeline
// and the resolver keep anyway, at the moment when somebody asks, and gives them names and units as Prometheus has them.
// Nothing is counted here, so that a scan costs the same whether it is watched or not.
//
// metrics.go is a scan as it is seen, table.go every metric of it, server.go the page that a Prometheus scrapes, and file.go
// the file that a node_exporter collects. docs/METRICS.md is written from the table.
package metrics

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/pipeline"
)

// State is where a scan stands.
type State uint8

// The states of a scan.
const (
	Running     State = iota
	Complete          // the list is done, all of it is kept
	Interrupted       // stopped by a signal; the same command resumes
	Failed
	numStates
)

var stateTexts = [numStates]string{Running: "running", Complete: "complete", Interrupted: "interrupted", Failed: "failed"}

// String returns the value of the label `state`.
func (s State) String() string {
	if s < numStates {
		return stateTexts[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Scan is one scan as it is seen from outside: a prometheus.Collector. It is made by New before anything is asked, and shows
// zeros until Begin. It is safe for use by many goroutines.
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

// New returns a Scan that starts now, by a program of this version. names is called at every reading, by any goroutine, until
// nobody reads any more.
func New(version string, names func() resolve.Stats) *Scan {
	return &Scan{
		version: version, names: names, start: time.Now(),
		progress: new(pipeline.Progress), list: func() (read, total int64) { return 0, 0 },
	}
}

// Begin says whose counters are read from now on: those of the scan named id ("" for one without a name), and of a list of
// which so many bytes are read, of so many (0 where that is not known).
func (s *Scan) Begin(id string, progress *pipeline.Progress, list func() (read, total int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.progress, s.list = id, progress, list
}

// End says how the scan ended.
func (s *Scan) End(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.end = state, time.Now()
}

// snapshot is what one reading finds. The counts in it are not consistent with each other while the scan goes on.
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
	now.servers = united(now.names.Servers)
	return now
}

// united adds up what servers of the same address have counted: one that is named twice is one to whoever watches it, and
// two series of one name would spoil the whole reading.
func united(servers []resolve.ServerStats) []resolve.ServerStats {
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

// Describe sends what Collect may send.
func (s *Scan) Describe(descs chan<- *prometheus.Desc) {
	for i := range table {
		descs <- table[i].desc
	}
}

// Collect reads every counter.
func (s *Scan) Collect(metrics chan<- prometheus.Metric) {
	now := s.snapshot()
	for i := range table {
		m := &table[i]
		if m.spread != nil {
			metrics <- m.spread(m.desc, now)
			continue
		}
		m.read(now, func(value float64, labels ...string) {
			metrics <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
		})
	}
}

// page is everything that the HTTP page shows: the scan, the Go runtime and the process.
func (s *Scan) page() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(s, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// alone is what the file holds: the scan. A node_exporter has a runtime and a process of its own, and refuses to tell
// anything while a file claims the names of their metrics.
func (s *Scan) alone() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(s)
	return r
}
