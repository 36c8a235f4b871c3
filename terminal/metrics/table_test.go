package metrics

import (
	"math"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/pipeline"
)

// example returns a scan in which every metric has a value.
func example() *Scan {
	names := resolve.Stats{
		Lookups: 100, CacheHits: 40, Shared: 3, Strangers: 1,
		Servers: []resolve.ServerStats{
			{Addr: netip.MustParseAddrPort("192.0.2.53:53"), Questions: 60, Answers: 50, Failures: 4, Unheard: 10, TCP: 5,
				Rate: 250},
			{Addr: netip.MustParseAddrPort("[2001:db8::53]:53"), Questions: 6, Unheard: 6, Down: true, Rate: math.Inf(1)},
		},
		TookSum: 12 * time.Second,
	}
	for i := range names.Took {
		names.Took[i] = uint64(i + 1)
	}
	s := New("1.2.3", func() resolve.Stats { return names })
	s.Begin("20260102-a1b2c3", new(pipeline.Progress), func() (read, total int64) { return 500, 2000 })
	return s
}

// shown returns the metrics of a scan as lines `name{labels} value`.
func shown(t *testing.T, s *Scan) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shown.prom")
	if err := prometheus.WriteToTextfile(path, s.alone()); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(read(t, path)), "\n"),
		func(line string) bool { return strings.HasPrefix(line, "#") })
}

// A metric shows every counter of the pipeline, also one that is added later. Each counter gets a value of its own,
// which must be among the metrics.
func TestEveryCounterOfProgress(t *testing.T) {
	s := example()
	p := reflect.ValueOf(s.progress).Elem()
	next, want := uint64(1000), map[string]string{}
	set := func(name string, v reflect.Value) {
		next++
		switch c := v.Addr().Interface().(type) {
		case *atomic.Uint64:
			c.Store(next)
		case *atomic.Int64:
			c.Store(int64(next))
		default:
			t.Fatalf("%s is a %s: say here how to set it", name, v.Type())
		}
		want[strconv.FormatUint(next, 10)] = name
	}
	for i := range p.NumField() {
		field := p.Type().Field(i)
		switch {
		case !field.IsExported():
		case field.Type.Kind() == reflect.Array:
			for j := range p.Field(i).Len() {
				if field.Name == "Outcomes" && j == 0 {
					continue // no outcome
				}
				set(field.Name+"["+strconv.Itoa(j)+"]", p.Field(i).Index(j))
			}
		default:
			set(field.Name, p.Field(i))
		}
	}
	for _, line := range shown(t, s) {
		delete(want, line[strings.LastIndexByte(line, ' ')+1:])
	}
	for _, name := range want {
		t.Errorf("no metric shows Progress.%s", name)
	}
}

func TestValues(t *testing.T) {
	s := example()
	s.progress.Outcomes[4].Store(7)
	s.progress.Statuses[2].Store(9)
	got := shown(t, s)
	f := func(want string) {
		t.Helper()
		if !slices.Contains(got, want) {
			t.Errorf("no line %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
	f(`bulkscan_scan_info{scan_id="20260102-a1b2c3"} 1`)
	f(`bulkscan_scan_state{state="running"} 1`)
	f(`bulkscan_scan_state{state="failed"} 0`)
	f(`bulkscan_list_read_bytes_total 500`)
	f(`bulkscan_list_size_bytes 2000`)
	f(`bulkscan_outcomes_total{outcome="dns_not_found"} 7`)
	f(`bulkscan_outcomes_total{outcome="answered"} 0`)
	f(`bulkscan_statuses_total{class="2xx"} 9`)
	f(`bulkscan_statuses_total{class="none"} 0`)
	f(`bulkscan_dns_lookups_total 100`)
	f(`bulkscan_dns_cache_hits_total 40`)
	f(`bulkscan_dns_shared_lookups_total 3`)
	f(`bulkscan_dns_stray_packets_total 1`)
	f(`bulkscan_dns_questions_total{server="192.0.2.53:53"} 60`)
	f(`bulkscan_dns_answers_total{server="192.0.2.53:53"} 50`)
	f(`bulkscan_dns_failures_total{server="192.0.2.53:53"} 4`)
	f(`bulkscan_dns_unheard_total{server="[2001:db8::53]:53"} 6`)
	f(`bulkscan_dns_tcp_questions_total{server="192.0.2.53:53"} 5`)
	f(`bulkscan_dns_server_rate{server="192.0.2.53:53"} 250`)
	f(`bulkscan_dns_server_rate{server="[2001:db8::53]:53"} +Inf`)
	f(`bulkscan_dns_server_up{server="192.0.2.53:53"} 1`)
	f(`bulkscan_dns_server_up{server="[2001:db8::53]:53"} 0`)
	f(`bulkscan_dns_lookup_duration_seconds_bucket{le="0.001"} 1`)
	f(`bulkscan_dns_lookup_duration_seconds_bucket{le="0.002"} 3`)
	f(`bulkscan_dns_lookup_duration_seconds_bucket{le="10"} 91`)
	f(`bulkscan_dns_lookup_duration_seconds_bucket{le="+Inf"} 105`)
	f(`bulkscan_dns_lookup_duration_seconds_count 105`)
	f(`bulkscan_dns_lookup_duration_seconds_sum 12`)
}

// A metric whose value is not known yet is absent.
func TestUnknownIsAbsent(t *testing.T) {
	s := New("1.2.3", func() resolve.Stats { return resolve.Stats{} })
	f := func(present, absent string) {
		t.Helper()
		got := "\n" + strings.Join(shown(t, s), "\n")
		for want := range strings.FieldsSeq(present) {
			if !strings.Contains(got, "\n"+want) {
				t.Errorf("no %s in%s", want, got)
			}
		}
		for other := range strings.FieldsSeq(absent) {
			if strings.Contains(got, "\n"+other) {
				t.Errorf("%s in%s", other, got)
			}
		}
	}
	f("bulkscan_origins_kept_total bulkscan_dns_lookup_duration_seconds_count bulkscan_scan_start_time_seconds",
		"bulkscan_scan_info bulkscan_list_size_bytes bulkscan_scan_end_time_seconds bulkscan_dns_server_up")
	s.Begin("", new(pipeline.Progress), func() (read, total int64) { return 10, 0 })
	f("bulkscan_list_read_bytes_total", "bulkscan_scan_info bulkscan_list_size_bytes")
	s.End(Interrupted)
	f(`bulkscan_scan_state{state="interrupted"} bulkscan_scan_end_time_seconds`, "")
	if line := `bulkscan_scan_state{state="running"} 0`; !slices.Contains(shown(t, s), line) {
		t.Errorf("no %s", line)
	}
}

// A name server that is named twice is one series, and labels are valid UTF-8. Otherwise Prometheus would reject the
// whole page.
func TestOddServers(t *testing.T) {
	zone := netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone("eth\xff\"0\n"), 53)
	twice := netip.MustParseAddrPort("192.0.2.1:53")
	s := New("1\xff", func() resolve.Stats {
		return resolve.Stats{Servers: []resolve.ServerStats{
			{Addr: twice, Questions: 1, Answers: 10, Failures: 100, Unheard: 1000, TCP: 10000, Down: true, Rate: 7},
			{Addr: zone, Questions: 5},
			{Addr: twice, Questions: 2, Answers: 20, Failures: 200, Unheard: 2000, TCP: 20000, Rate: 8},
		}}
	})
	s.Begin("scan\xff", new(pipeline.Progress), func() (read, total int64) { return 0, 0 })
	got := shown(t, s)
	for _, want := range []string{
		`bulkscan_dns_questions_total{server="192.0.2.1:53"} 3`,
		`bulkscan_dns_answers_total{server="192.0.2.1:53"} 30`,
		`bulkscan_dns_failures_total{server="192.0.2.1:53"} 300`,
		`bulkscan_dns_unheard_total{server="192.0.2.1:53"} 3000`,
		`bulkscan_dns_tcp_questions_total{server="192.0.2.1:53"} 30000`,
		`bulkscan_dns_server_rate{server="192.0.2.1:53"} 15`,
		`bulkscan_dns_server_up{server="192.0.2.1:53"} 1`,
		`bulkscan_dns_questions_total{server="[fe80::1%eth` + "\uFFFD" + `\"0\n]:53"} 5`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no line %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// Prometheus' linter and its pedantic registry find no problem.
func TestLint(t *testing.T) {
	s := example()
	s.End(Complete)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector(s.tables))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	// Each row needs a value in the example, so that the linter sees it.
	rows := 0
	for _, section := range s.tables() {
		rows += len(section.metrics)
	}
	if len(families) != rows {
		t.Errorf("%d of %d metrics have a value", len(families), rows)
	}
}

// The page has metrics of the runtime and the process. The file must not.
func TestPageAndFile(t *testing.T) {
	f := func(g prometheus.Gatherer, want bool) {
		t.Helper()
		families, err := g.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, family := range families {
			prefix, _, _ := strings.Cut(family.GetName(), "_")
			found[prefix] = true
		}
		if !found["bulkscan"] || found["go"] != want || found["process"] && !want || !want && len(found) != 1 {
			t.Errorf("metrics of %v, want others than bulkscan's: %v", found, want)
		}
	}
	f(example().page(), true)
	f(example().alone(), false)
}
