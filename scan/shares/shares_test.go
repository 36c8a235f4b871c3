package shares

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/origin"
)

// TestPartition cuts a list of real hosts into shares. Each host is in exactly one, with its registrable domain, and
// each share has about as many registrable domains as the others.
func TestPartition(t *testing.T) {
	path := sharedtest.Path(t, "lists", "merged-origins.csv.zst")
	list, err := inputs.Open(t.Context(), []string{path}, inputs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	sites, domains := map[uint64]int{}, map[string]uint64{} // hosts by key, keys by registrable domain
	for {
		entry, err := list.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		k := key(entry.Origin)
		sites[k]++
		if domain := entry.Origin.RegistrableDomain(); domain != "" {
			if before, ok := domains[domain]; ok && before != k {
				t.Fatalf("%s is not in the share of the other hosts of %s", entry.Origin.Host(), domain)
			}
			domains[domain] = k
		}
		const n = 8
		for i := range n {
			if (Share{i, n}).Has(entry.Origin) != (i == Of(entry.Origin, n)) {
				t.Fatalf("%s is not in exactly one share", entry.Origin.Host())
			}
		}
	}
	for n := 1; n <= 64; n++ {
		hosts, of := make([]int, n), make([]int, n)
		for k, count := range sites {
			hosts[k%uint64(n)] += count
		}
		for _, k := range domains {
			of[k%uint64(n)]++
		}
		mean := float64(len(domains)) / float64(n)
		for i, count := range of {
			if off := float64(count)/mean - 1; off > 0.05 || off < -0.05 {
				t.Errorf("share %d of %d has %d registrable domains, the mean is %.0f", i, n, count, mean)
			}
		}
		if n&(n-1) == 0 {
			t.Logf("%2d shares: from %d to %d of %d registrable domains, from %d to %d hosts", n, slices.Min(of), slices.Max(of),
				len(domains), slices.Min(hosts), slices.Max(hosts))
		}
	}
}

// TestStable checks that the shares of some hosts are those of every release: a scan may be continued on another
// machine.
func TestStable(t *testing.T) {
	f := func(host string, want int) {
		t.Helper()
		o, err := origin.Parse(host)
		if err != nil {
			t.Fatal(err)
		}
		if got := Of(o, 100); got != want {
			t.Errorf("%s is in share %d of 100, want %d", host, got, want)
		}
		for i := range 100 {
			if (Share{i, 100}).Has(o) != (i == want) {
				t.Errorf("%s: share %d of 100 is wrong about it", host, i)
			}
		}
	}
	f("example.com", 85)
	f("https://www.example.com:8443", 85)
	f("http://EXAMPLE.com", 85)
	f("a.example.co.uk", 4)
	f("b.example.co.uk", 4)
	f("me.github.io", 74)
	f("192.0.2.1", 69)
	f("co.uk", 98)
	f("localhost", 36)
	f("a.b.c.d.e.example.com", 85)
	f("2001:db8::1", 85)
}

// What a task pays for a line of another share:
//
//	go test -run '^$' -bench BenchmarkHas ./scan/shares
func BenchmarkHas(b *testing.B) {
	for _, host := range []string{"example.com", "www.example.co.uk", "a.b.c.example.com", "192.0.2.1"} {
		o, err := origin.Parse(host)
		if err != nil {
			b.Fatal(err)
		}
		other := Share{(Of(o, 64) + 1) % 64, 64}
		b.Run(host, func(b *testing.B) {
			for b.Loop() {
				other.Has(o)
			}
		})
	}
}

func TestParse(t *testing.T) {
	f := func(text string, want Share, says string) {
		t.Helper()
		got, err := Parse(text)
		if got != want || (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	f("0/1", Share{0, 1}, "")
	f("7/8", Share{7, 8}, "")
	f("8/8", Share{}, "there is no share 8")
	f("-1/8", Share{}, "there is no share -1")
	f("0/0", Share{}, "from 1 to 10000")
	f("0/10001", Share{}, "from 1 to 10000")
	f("3", Share{}, "not of the form I/N")
	f("a/b", Share{}, "not of the form I/N")
}

func TestFromEngine(t *testing.T) {
	f := func(environment string, want Task, says string) {
		t.Helper()
		variables := map[string]string{}
		for _, v := range strings.Fields(environment) {
			name, value, _ := strings.Cut(v, "=")
			variables[name] = value
		}
		got, err := FromEngine(func(name string) string { return variables[name] })
		if says == "" && (err != nil || got != want) || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %+v, %v", environment, got, err)
		}
	}
	const slurm = "SLURM_ARRAY_JOB_ID=17 SLURM_ARRAY_TASK_STEP=1 "
	f(slurm+"SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=8 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_MAX=7",
		Task{Share{3, 8}, "slurm-17"}, "")
	f(slurm+"SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_MIN=3 SLURM_ARRAY_TASK_MAX=5", Task{},
		"not 0 to 1; submit --array=0-1, or set BULKSCAN_SHARES")
	f(slurm+"SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=8 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=8", Task{},
		"submit --array=0-7")
	f(slurm+
		"SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_MIN=3 SLURM_ARRAY_TASK_MAX=5 BULKSCAN_SHARES=8",
		Task{Share{3, 8}, "slurm-17"}, "")
	f("SLURM_JOB_ID=17", Task{}, "no task of an array job")
	f("JOB_COMPLETION_INDEX=0 BULKSCAN_SHARES=16", Task{Share{0, 16}, ""}, "")
	f("JOB_COMPLETION_INDEX=0", Task{}, "Kubernetes: it does not tell how many shares there are; set BULKSCAN_SHARES")
	f("JOB_COMPLETION_INDEX=16 BULKSCAN_SHARES=16", Task{}, "Kubernetes: of 16 shares the first is 0")
	f("JOB_COMPLETION_INDEX=0 BULKSCAN_SHARES=many", Task{}, "Kubernetes: BULKSCAN_SHARES is \"many\", not a number")
	f("AWS_BATCH_JOB_ARRAY_INDEX=2 AWS_BATCH_JOB_ARRAY_SIZE=10 AWS_BATCH_JOB_ID=6c7a1d3e-0b7f-4e4e-9a57-4a1f5b4e2a11:2",
		Task{Share{2, 10}, "6c7a1d3e-0b7f-4e4e-9a57-4a1f5b4e2a11"}, "")
	f("CLOUD_RUN_TASK_INDEX=1 CLOUD_RUN_TASK_COUNT=4 CLOUD_RUN_EXECUTION=scan-x7k2p", Task{Share{1, 4}, "scan-x7k2p"}, "")
	f("BATCH_TASK_INDEX=1 BATCH_TASK_COUNT=4", Task{Share{1, 4}, ""}, "")
	f("", Task{}, "none of AWS_BATCH_JOB_ARRAY_INDEX (AWS Batch)")
}

// TestPlanCountsLargeDomains adds many more domains than are counted at a time, and one that is large.
func TestPlanCountsLargeDomains(t *testing.T) {
	p := NewPlanner(PlanOptions{Workers: 4, IPRate: 10, Sample: 100})
	const domains, large = maxCounted + 1000, 5000
	for i := range domains {
		host := "d" + strconv.Itoa(i) + ".com"
		if i%200 == 0 && i/200 < large {
			host = "h" + strconv.Itoa(i) + ".large.com"
		}
		o, err := origin.Parse(host)
		if err != nil {
			t.Fatal(err)
		}
		p.Add(o)
	}
	var asked atomic.Int64
	p.LookUp(func(string) []netip.Addr { // every second host has addresses
		return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}[:asked.Add(1)%2*2]
	})
	plan := p.Plan()
	if len(plan.Large) != 1 || plan.Large[0] != (DomainCount{"large.com", large}) {
		t.Errorf("large domains: %v", plan.Large)
	}
	if plan.Shares != domains/leastSites || len(p.Sample()) != 100 || plan.Busiest[0].Sites != domains/2 ||
		int(plan.Floor*100) != domains/2*100/36000 {
		t.Errorf("%+v", plan)
	}
}

// ownRates are the Rates of one network and one domain.
type ownRates struct{}

func (ownRates) Address(addr netip.Addr) (float64, bool) {
	return 100, netip.MustParsePrefix("192.0.2.0/24").Contains(addr)
}

func (ownRates) Domain(host string) (string, float64, bool) {
	return "large.com", 0.5, strings.HasSuffix(host, ".large.com")
}

// TestPlanCountsRates makes one list bound by a domain, by an address with the rate of all, and by one with its own.
func TestPlanCountsRates(t *testing.T) {
	f := func(inDomain, at1, at2 int, wantOf string, wantSeconds float64) {
		t.Helper()
		p := NewPlanner(PlanOptions{Workers: 1, IPRate: 10, Rates: ownRates{}, Sample: 1 << 20})
		for i := range inDomain + at1 + at2 {
			host, addr := fmt.Sprintf("h%d.large.com", i), fmt.Sprintf("203.0.113.%d", i%200)
			switch {
			case i >= inDomain+at1:
				host, addr = fmt.Sprintf("d%d.com", i), "192.0.2.2"
			case i >= inDomain:
				host, addr = fmt.Sprintf("d%d.com", i), "198.51.100.1"
			}
			o, err := origin.Parse(host)
			if err != nil {
				t.Fatal(err)
			}
			p.Add(o)
			p.found(netip.MustParseAddr(addr))
		}
		if plan := p.Plan(); plan.FloorOf != wantOf || math.Abs(plan.Floor*3600-wantSeconds) > 1e-6 {
			t.Errorf("%d in the domain, %d and %d at addresses: %s takes %v s; want %s and %v s", inDomain, at1, at2,
				plan.FloorOf, plan.Floor*3600, wantOf, wantSeconds)
		}
	}
	f(100, 500, 1000, "large.com", 200)
	f(10, 500, 1000, "198.51.100.1", 50)
	f(10, 500, 9000, "192.0.2.2", 90)
}
