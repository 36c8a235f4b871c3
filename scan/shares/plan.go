package shares

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/pipeline"
)

// PlanOptions say how a scan will be run.
type PlanOptions struct {
	Workers int     // tasks that run at once
	IPRate  float64 // exchanges a second to an address, by all of them; 0 is no limit
	Rates   Rates   // of addresses and domains that have their own; nil: none has
	Sample  int     // sites whose addresses are looked up
}

// Rates yields the rates of addresses, and those that the hosts of a domain share, in exchanges a second; 0 is no
// limit.
type Rates interface {
	Address(addr netip.Addr) (perSecond float64, ok bool)
	Domain(host string) (domain string, perSecond float64, ok bool)
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
	Floor    float64        `json:"floor_hours"`        // time of the slowest address or domain, however many tasks there are
	FloorOf  string         `json:"floor_of,omitempty"` // that address or domain
	Large    []DomainCount  `json:"large_domains"`
}

// AddressCount is how many sites an address is estimated to have. The addresses of an IPv6 /64 share one rate, and
// count as the first of them.
type AddressCount struct {
	Address netip.Addr `json:"address"`
	Sampled int        `json:"sampled"`
	Sites   int64      `json:"sites"`
	Rate    float64    `json:"rate"` // exchanges a second; 0 is no limit
}

// Name is the address, or for IPv6 its /64.
func (c AddressCount) Name() string {
	if c.Address.Is6() {
		return netip.PrefixFrom(c.Address, 64).String()
	}
	return c.Address.String()
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
	rated     map[string]ratedDomain
}

// ratedDomain is a domain whose hosts share a rate.
type ratedDomain struct {
	sites     int64
	perSecond float64
}

const (
	tasksEach    = 16      // shares for each task that runs at once
	leastSites   = 20_000  // sites of a share: to begin and collect one with fewer costs more than it saves
	shownBusiest = 10      // addresses
	maxCounted   = 1 << 20 // domains whose hosts are counted at a time
)

// NewPlanner returns a Planner that has seen no site. The same list gives the same sample.
func NewPlanner(o PlanOptions) *Planner {
	return &Planner{o: o, dice: rand.New(rand.NewPCG(1, 2)), domains: map[string]int64{}, addresses: map[netip.Addr]int{},
		rated: map[string]ratedDomain{}}
}

// Add counts a site.
func (p *Planner) Add(o origin.Origin) {
	p.sites++
	if len(p.sample) < p.o.Sample {
		p.sample = append(p.sample, o)
	} else if i := p.dice.Int64N(p.sites); i < int64(len(p.sample)) {
		p.sample[i] = o
	}
	if p.o.Rates != nil {
		if domain, perSecond, ok := p.o.Rates.Domain(o.Host()); ok {
			p.rated[domain] = ratedDomain{p.rated[domain].sites + 1, perSecond}
		}
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

// inFlight is how many names of the sample are looked up at once.
const inFlight = 256

// LookUp counts the addresses of the sample, of each site the first.
func (p *Planner) LookUp(lookup func(host string) []netip.Addr) {
	hosts, found := make(chan string), make(chan netip.Addr)
	var asking sync.WaitGroup
	for range inFlight {
		asking.Go(func() {
			for host := range hosts {
				if addrs := lookup(host); len(addrs) > 0 {
					found <- addrs[0]
				}
			}
		})
	}
	go func() {
		for _, o := range p.sample {
			if addr, is := o.Addr(); is {
				found <- addr
			} else {
				hosts <- o.Host()
			}
		}
		close(hosts)
		asking.Wait()
		close(found)
	}()
	for addr := range found {
		p.found(addr)
	}
}

// found counts an address of a site of the sample.
func (p *Planner) found(addr netip.Addr) {
	p.resolved++
	p.addresses[pipeline.NetworkOf(addr)]++
}

// Plan returns what the list needs.
func (p *Planner) Plan() *Plan {
	plan := &Plan{Sites: p.sites, Workers: p.o.Workers, Shares: min(Max, tasksEach*p.o.Workers,
		int(max(1, p.sites/leastSites))), IPRate: p.o.IPRate, Sampled: len(p.sample), Resolved: p.resolved,
		Busiest: []AddressCount{}, Large: []DomainCount{}}
	for addr, n := range p.addresses {
		rate := p.o.IPRate
		if p.o.Rates != nil {
			if own, ok := p.o.Rates.Address(addr); ok {
				rate = own
			}
		}
		sites := int64(float64(n) * float64(p.sites) / float64(len(p.sample)))
		count := AddressCount{addr, n, sites, rate}
		plan.takes(sites, rate, count.Name())
		plan.Busiest = append(plan.Busiest, count)
	}
	slices.SortFunc(plan.Busiest, func(a, b AddressCount) int {
		return cmp.Or(cmp.Compare(b.Sampled, a.Sampled), a.Address.Compare(b.Address))
	})
	plan.Busiest = plan.Busiest[:min(len(plan.Busiest), shownBusiest)]
	for domain, r := range p.rated {
		plan.takes(r.sites, r.perSecond, domain)
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

// takes raises the floor to the time that so many sites need at a rate. If two need the same time, the first by name is
// reported.
func (p *Plan) takes(sites int64, perSecond float64, who string) {
	if perSecond <= 0 {
		return
	}
	hours := float64(sites) / perSecond / 3600
	if hours > p.Floor || hours == p.Floor && who < p.FloorOf {
		p.Floor, p.FloorOf = hours, who
	}
}
