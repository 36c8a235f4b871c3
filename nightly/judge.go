package nightly

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Figures are the numbers of sites by which a night is judged.
type Figures struct {
	Sites     int64            `json:"sites" about:"sites"`
	DNSFailed int64            `json:"dns_failed" about:"sites without an address, for any reason"`
	Rules     int64            `json:"rules" about:"sites with finding rules"`
	Blocked   int64            `json:"blocked" about:"of rules, sites that block at least one token of the registry"`
	Findings  map[string]int64 `json:"findings" about:"sites by finding"`
	CDNs      map[string]*CDN  `json:"cdns" about:"figures by delivery network; the key is empty for sites that show none"`
}

// CDN are the figures of one delivery network.
type CDN struct {
	Sites    int64            `json:"sites" about:"sites"`
	Findings map[string]int64 `json:"findings" about:"sites by finding"`
}

// Bound is the range that a share must lie in.
type Bound struct{ Low, High float64 }

// Check is one share of a night that is out of its bound.
type Check struct {
	Figure string  `json:"figure" about:"share that is judged (docs/nightly.md); or date, whose share are the days since the last night whose date is in no doubt"`
	Share  float64 `json:"share" about:"its value"`
	Of     int64   `json:"of" about:"sites of which it is a share"`
	Low    float64 `json:"low" about:"lower bound"`
	High   float64 `json:"high" about:"upper bound"`
	Nights int     `json:"nights" about:"nights from which the bound was learnt; 0 if it was given, or is the one for first nights"`
}

func (c Check) String() string {
	if c.Figure == dateFigure {
		return fmt.Sprintf("the date is %v days after that of the last night that is in no doubt: the clock may be wrong",
			c.Share)
	}
	from := "as given"
	if c.Nights > 0 {
		from = fmt.Sprintf("by the last %d nights", c.Nights)
	}
	return fmt.Sprintf("%s is %.1f %% of %d sites, expected from %.1f to %.1f %% %s", c.Figure, 100*c.Share, c.Of,
		100*c.Low, 100*c.High, from)
}

// share is one figure of a night.
type share struct{ n, of int64 }

func (s share) value() float64 { return float64(s.n) / float64(max(s.of, 1)) }

const (
	dateFigure = "date" // no share, but a date in doubt

	// NoAnswer is the share of sites about which nothing was learned. Even the first nights are judged by it.
	NoAnswer = "no_answer"

	learnFrom  = 14 // maximum of nights that bounds are learnt from
	learnLeast = 3  // minimum; with fewer nights only NoAnswer has a bound

	// A share may differ from the median of earlier nights by the largest of these values.
	floor      = 0.02 // of all sites
	floorOfCDN = 0.10 // of the sites of one network, which change their ways together
	spread     = 6.0  // times the spread of the earlier nights, as standard deviations
	sampling   = 5.0  // times the standard deviation of a random sample of so many sites
	normal     = 1.4826
)

var firstNight = Bound{0, 0.5}

// shares returns the shares that are judged, by their names: no_answer, dns_failed, blocked, finding.NAME, cdn.NAME and
// cdn.NAME.FINDING.
func (f *Figures) shares() map[string]share {
	all := map[string]share{"dns_failed": {f.DNSFailed, f.Sites}, "blocked": {f.Blocked, f.Rules}}
	answered := int64(0)
	for finding, n := range f.Findings {
		all["finding."+finding] = share{n, f.Sites}
		if !gaps[finding] {
			answered += n
		}
	}
	all[NoAnswer] = share{f.Sites - answered, f.Sites}
	for name, cdn := range f.CDNs {
		if name == "" {
			continue
		}
		all["cdn."+name] = share{cdn.Sites, f.Sites}
		for finding, n := range cdn.Findings {
			all["cdn."+name+"."+finding] = share{n, cdn.Sites}
		}
	}
	return all
}

// Silent is the number of sites about which nothing was learned.
func (f *Figures) Silent() int64 { return f.shares()[NoAnswer].n }

// ParseBound reads a figure and its bound, as in dns_failed=0..0.1.
func ParseBound(text string) (figure string, b Bound, ok bool) {
	figure, of, hasRange := strings.Cut(text, "=")
	low, high, hasEnd := strings.Cut(of, "..")
	from, errFrom := strconv.ParseFloat(low, 64)
	to, errTo := strconv.ParseFloat(high, 64)
	return figure, Bound{from, to}, hasRange && hasEnd && errFrom == nil && errTo == nil && isFigure(figure) &&
		0 <= from && from <= to && to <= 1
}

// isFigure reports whether a text may be the name of a share.
func isFigure(name string) bool {
	parts := strings.Split(name, ".")
	switch {
	case parts[0] == "finding" && len(parts) == 2, parts[0] == "cdn" && len(parts) == 3:
		_, known := gaps[parts[len(parts)-1]]
		return known
	case parts[0] == "cdn":
		return len(parts) == 2
	}
	return name == NoAnswer || name == "dns_failed" || name == "blocked"
}

// at returns a share by its name. A finding or a network that a night does not have is a share of 0. ok is false if the
// night has no such figure.
func (f *Figures) at(name string, all map[string]share) (s share, ok bool) {
	if s, ok = all[name]; !ok {
		s.of = f.Sites
		if network, finding, isFinding := strings.Cut(strings.TrimPrefix(name, "cdn."), "."); isFinding &&
			strings.HasPrefix(name, "cdn.") {
			cdn := f.CDNs[network]
			if s.of = 0; cdn != nil {
				s = share{cdn.Findings[finding], cdn.Sites}
			}
		}
	}
	return s, s.of > 0
}

// Judge returns the shares of a night that are out of bounds: none if the night counts. earlier has nights that count,
// the newest last. A bound is learnt from the last 14 of them, unless given has one of that name.
func Judge(tonight *Figures, earlier []*Figures, given map[string]Bound) (out []Check) {
	earlier = earlier[max(0, len(earlier)-learnFrom):]
	now, names := tonight.shares(), map[string]bool{}
	before := make([]map[string]share, len(earlier))
	for name := range now {
		names[name] = true
	}
	for i, f := range earlier {
		before[i] = f.shares()
		for name := range before[i] {
			names[name] = true
		}
	}
	for name := range given {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		s, ok := tonight.at(name, now)
		if !ok {
			continue // if no site shows a network tonight, only its share cdn.NAME is judged, as 0
		}
		var past []float64
		for i, f := range earlier {
			if was, ok := f.at(name, before[i]); ok {
				past = append(past, was.value())
			}
		}
		bound, nights, ok := boundOf(name, s.of, past, given)
		if ok && (s.value() < bound.Low || s.value() > bound.High) {
			out = append(out, Check{Figure: name, Share: s.value(), Of: s.of, Low: bound.Low, High: bound.High, Nights: nights})
		}
	}
	// The greatest deviation comes first: a failure changes many shares, and most of all the share of its cause.
	slices.SortStableFunc(out, func(a, b Check) int { return cmp.Compare(b.distance(), a.distance()) })
	return out
}

func (c Check) distance() float64 { return max(c.Low-c.Share, c.Share-c.High) * float64(c.Of) }

// boundOf returns the bound of a share of `of` sites, and from how many nights it is learnt. ok is false if there is no
// bound.
func boundOf(name string, of int64, past []float64, given map[string]Bound) (b Bound, nights int, ok bool) {
	if b, ok = given[name]; ok {
		return b, 0, true
	}
	if len(past) < learnLeast {
		return firstNight, 0, name == NoAnswer
	}
	centre := median(past)
	for i := range past {
		past[i] = math.Abs(past[i] - centre)
	}
	n, width := float64(of), floor
	if strings.HasPrefix(name, "cdn.") && strings.Count(name, ".") == 2 {
		width = floorOfCDN
	}
	width = max(width, spread*normal*median(past), sampling*math.Sqrt((centre*(1-centre)+1/n)/n))
	return Bound{max(0, centre-width), min(1, centre+width)}, len(past), true
}

// median sorts the values.
func median(values []float64) float64 {
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 0 {
		return (values[middle-1] + values[middle]) / 2
	}
	return values[middle]
}
