package shares

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/bulkscan/bulkscan/internal/origin"
)

// PlanOptions say how a scan will be run.
type PlanOptions struct {
	Workers int     // tasks that run at once
	IPRate  float64 // exchanges a second to an address, by all of them; 0 is no limit
	Sample  int     // sites whose addresses are looked up
}

// Plan says what a list needs. Counts by address are estimates from a sample.
type Plan struct {
	Sites    int64          `json:"sites"`
	Workers  int            `json:"workers"`
	Shares   int            `json:"shares"`
	IPRate   float64        `json:"ip_rate"`
	Sampled  int            `json:"sampled"`  // sites whose addresses were looked up
	Resolved int            `json:"resolved"` // of them, those with an address
	Busiest  []AddressCount `json:"busiest_addresses"`
	Floor    float64        `json:"floor_hours"` // for the busiest address, however many tasks there are
	Large    []DomainCount  `json:"large_domains"`
}

// AddressCount is how many sites an address is estimated to have.
type AddressCount struct {
	Address netip.Addr `json:"address"`
	Sampled int        `json:"sampled"`
	Sites   int64      `json:"sites"`
}

// DomainCount is how many sites of the list a registrable domain has.
type DomainCount struct {
	Domain string `json:"domain"`
	Sites  int64  `json:"sites"`
}

// Planner counts the sites of a list.
type Planner struct {
	o         PlanOptions
	sites     int64
	sample    []origin.Origin // each site is in it with the same probability
	dice      *rand.Rand
	domains   map[string]int64 // of domains that may be large, at least sites - forgotten
	forgotten int64
	addresses map[netip.Addr]int
	resolved  int
}

const (
	tasksEach    = 16      // shares for each task that runs at once
	shownBusiest = 10      // addresses
	maxCounted   = 1 << 20 // domains that are counted at a time
)

// NewPlanner returns a Planner that has seen no site. The same list gives the same sample.
func NewPlanner(o PlanOptions) *Planner {
	return &Planner{o: o, dice: rand.New(rand.NewPCG(1, 2)), domains: map[string]int64{}, addresses: map[netip.Addr]int{}}
}

// Add counts a site.
func (p *Planner) Add(o origin.Origin) {
	p.sites++
	if len(p.sample) < p.o.Sample {
		p.sample = append(p.sample, o)
	} else if i := p.dice.Int64N(p.sites); i < int64(len(p.sample)) {
		p.sample[i] = o
	}
	domain := cmp.Or(o.RegistrableDomain(), o.Host())
	if _, counted := p.domains[domain]; !counted && len(p.domains) == maxCounted {
		// Algorithm of Misra and Gries: all counts lose one, so that domains with few sites make room.
		p.forgotten++
		maps.DeleteFunc(p.domains, func(domain string, n int64) bool { p.domains[domain] = n - 1; return n == 1 })
		return
	}
	p.domains[domain]++
}

// Sample returns the sites to look up, once all sites were added.
func (p *Planner) Sample() []origin.Origin { return p.sample }

// Resolved counts the address of a site of the sample.
func (p *Planner) Resolved(addr netip.Addr) {
	p.resolved++
	p.addresses[addr]++
}

// Plan returns what the list needs.
func (p *Planner) Plan() *Plan {
	plan := &Plan{Sites: p.sites, Workers: p.o.Workers, Shares: min(Max, tasksEach*p.o.Workers), IPRate: p.o.IPRate, Sampled: len(p.sample), Resolved: p.resolved, Busiest: []AddressCount{}, Large: []DomainCount{}}
	for addr, n := range p.addresses {
		plan.Busiest = append(plan.Busiest, AddressCount{addr, n, int64(float64(n) * float64(p.sites) / float64(len(p.sample)))})
	}
	slices.SortFunc(plan.Busiest, func(a, b AddressCount) int {
		return cmp.Or(cmp.Compare(b.Sampled, a.Sampled), a.Address.Compare(b.Address))
	})
	plan.Busiest = plan.Busiest[:min(len(plan.Busiest), shownBusiest)]
	if len(plan.Busiest) > 0 && p.o.IPRate > 0 {
		plan.Floor = float64(plan.Busiest[0].Sites) / p.o.IPRate / 3600
	}
	for domain, n := range p.domains {
		if n += p.forgotten; n > 1 && n*10 > p.sites/int64(plan.Shares) {
			plan.Large = append(plan.Large, DomainCount{domain, n})
		}
	}
	slices.SortFunc(plan.Large, func(a, b DomainCount) int {
		return cmp.Or(cmp.Compare(b.Sites, a.Sites), cmp.Compare(a.Domain, b.Domain))
	})
	return plan
}
