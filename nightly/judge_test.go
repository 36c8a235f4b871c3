package nightly

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// figuresOf makes the figures of a night of so many sites: half of them at cloudflare, a fifth at fastly.
func figuresOf(sites int64, change func(f *Figures)) *Figures {
	network := func(n int64) *CDN {
		return &CDN{Sites: n, Findings: map[string]int64{"rules": n * 80 / 100, "none": n * 15 / 100, "refused": n * 5 / 100}}
	}
	f := &Figures{Sites: sites, DNSFailed: sites * 4 / 100, Findings: map[string]int64{}, CDNs: map[string]*CDN{
		"cloudflare": network(sites / 2), "fastly": network(sites / 5),
		"": {Sites: sites * 3 / 10, Findings: map[string]int64{"rules": sites * 20 / 100, "unreachable": sites * 10 / 100}},
	}}
	if change != nil {
		change(f)
	}
	for _, cdn := range f.CDNs {
		for finding, n := range cdn.Findings {
			f.Findings[finding] += n
		}
	}
	f.Rules = f.Findings["rules"]
	if f.Blocked == 0 {
		f.Blocked = f.Rules * 30 / 100
	}
	return f
}

// become makes a share of a network's sites with one finding have another.
func become(cdn, from, to string, percent int64) func(*Figures) {
	return func(f *Figures) {
		findings := f.CDNs[cdn].Findings
		n := findings[from] * percent / 100
		findings[from] -= n
		findings[to] += n
	}
}

// lost makes all sites of all networks unreachable, as if no name server answered.
func lost(f *Figures) {
	f.CDNs = map[string]*CDN{"": {Sites: f.Sites, Findings: map[string]int64{"unreachable": f.Sites}}}
	f.DNSFailed = f.Sites
}

func TestJudge(t *testing.T) {
	// wavering nights differ by a few tenths of a percent, as real ones do.
	nights := func(n int, sites int64) (list []*Figures) {
		for i := range n {
			list = append(list, figuresOf(sites, become("", "rules", "unreachable", int64(i%3))))
		}
		return list
	}
	month := nights(30, 100_000)
	f := func(name string, tonight *Figures, earlier []*Figures, given map[string]Bound, want string) {
		t.Helper()
		got := map[string]bool{}
		for _, c := range Judge(tonight, earlier, given) {
			got[c.Figure] = true
		}
		if text := strings.Join(slices.Sorted(maps.Keys(got)), " "); text != want {
			t.Errorf("%s: out of bounds are %q, want %q", name, text, want)
		}
	}
	f("a night like the others", figuresOf(100_000, nil), month, nil, "")
	f("first night", figuresOf(100_000, nil), nil, nil, "")
	f("few nights before, and anything may be new", figuresOf(100_000, become("cloudflare", "rules", "refused", 100)),
		nights(2, 100_000), nil, "")
	f("few nights before, but nobody answers", figuresOf(100_000, lost), nights(2, 100_000), nil, "no_answer")
	f("first night, and nobody answers", figuresOf(100_000, lost), nil, nil, "no_answer")
	f("three nights before", figuresOf(100_000, become("cloudflare", "rules", "refused", 100)), nights(3, 100_000), nil,
		"cdn.cloudflare.refused cdn.cloudflare.rules finding.refused finding.rules")
	f("a network refuses for one night", figuresOf(100_000, become("cloudflare", "rules", "refused", 100)), month, nil,
		"cdn.cloudflare.refused cdn.cloudflare.rules finding.refused finding.rules")
	f("a small network refuses in part", figuresOf(100_000, become("fastly", "rules", "refused", 15)), month, nil,
		"cdn.fastly.refused cdn.fastly.rules finding.refused finding.rules")
	f("a network challenges", figuresOf(100_000, become("fastly", "rules", "challenged", 40)), month, nil,
		"cdn.fastly.challenged cdn.fastly.rules finding.challenged finding.rules no_answer")
	f("a network challenges a few", figuresOf(100_000, become("fastly", "rules", "challenged", 5)), month, nil, "")
	f("the resolver is dead", figuresOf(100_000, lost), month, nil,
		"cdn.cloudflare cdn.fastly dns_failed finding.none finding.refused finding.rules finding.unreachable no_answer")
	f("the list has grown", figuresOf(300_000, nil), month, nil, "")
	f("the list has grown by dead names", figuresOf(100_000, func(f *Figures) {
		f.Sites += 50_000
		f.DNSFailed += 50_000
		f.CDNs[""].Sites += 50_000
		f.CDNs[""].Findings["unreachable"] += 50_000
	}), month, nil, "cdn.cloudflare cdn.fastly dns_failed finding.none finding.rules finding.unreachable no_answer")
	f("more sites block than ever", figuresOf(100_000, func(f *Figures) { f.Blocked = 40_000 }), month, nil, "blocked")
	f("a night of chance: twenty sites", figuresOf(20, become("cloudflare", "rules", "refused", 30)), nights(14, 20), nil,
		"")
	f("given wider", figuresOf(100_000, become("fastly", "rules", "challenged", 40)), month, map[string]Bound{
		"cdn.fastly.challenged": {0, 0.5}, "cdn.fastly.rules": {0, 1}, "finding.challenged": {0, 0.1},
		"finding.rules": {0.5, 1}, NoAnswer: {0, 0.3},
	}, "")
	f("given narrower", figuresOf(100_000, nil), month, map[string]Bound{"dns_failed": {0, 0.01}}, "dns_failed")
	f("given, and not there", figuresOf(100_000, nil), nil, map[string]Bound{"finding.html": {0.1, 1},
		"cdn.akamai.rules": {0.5, 1}}, "finding.html")
	f("an old change is learnt", figuresOf(100_000, become("fastly", "rules", "challenged", 100)),
		slices.Concat(month[:16], slices.Repeat([]*Figures{figuresOf(100_000, become("fastly", "rules", "challenged", 100))},
			14)), nil, "")
	f("no sites", figuresOf(0, nil), month, nil, "")

	// Among all changed shares, the cause comes first.
	out := Judge(figuresOf(100_000, become("cloudflare", "rules", "refused", 100)), month, nil)
	if got, want := out[0].String(),
		"finding.refused is 43.5 % of 100000 sites, expected from 1.5 to 5.5 % by the last 14 nights"; got != want {
		t.Errorf("first: %s, want %s", got, want)
	}
}
