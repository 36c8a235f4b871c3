package simweb

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// world is the pure half of the simulated web: what a host is, told from the seed and its name alone. It holds no
// socket and no state that asking changes, so that the server and the truth can both be read off it.
type world struct {
	cfg    Config
	single bool // the system routes only 127.0.0.1: there is no address without a listener

	hot      netip.Addr   // where hot hosts live
	ordinary []netip.Addr // where all others live
	plain    []netip.Addr // with a listener for plain HTTP only
	nobody   []netip.Addr // without any listener
	holes    []netip.Addr // where a client's first packet is lost; none where the system does not do it
	six      bool         // hosts of which only IPv6 is known live at ::1; else nobody is there

	httpPort, tlsPort uint16

	chosen     []*Behaviour // those that a host may fall into, in the table's order
	cumulative []float64    // upper ends of their shares, the last is 1

	bodies *bodyPool
}

// The streams of a host's hash: each question draws on its own, so that its answer tells nothing about the others.
const (
	streamBehaviour = iota + 1
	streamAddress
	streamHot
	streamBody
	streamServer
	streamStatus
	streamDetail
)

// draw returns the host's 64 bits for one question.
func (w *world) draw(host string, stream uint64) uint64 {
	return mix(xxhash.Sum64String(host) + mix(w.cfg.Seed+stream))
}

// mix is the finaliser of splitmix64: every bit of x moves every bit of the result.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit maps 64 bits to [0, 1).
func unit(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// Suffixes of names that are asked for on purpose.
const (
	zooSuffix     = ".zoo.test"     // reset-head.zoo.test, a7.reset-head.zoo.test: the behaviour of that name
	landingSuffix = ".landing.test" // where redirects to other hosts land: always well
	hotSuffix     = ".hot.test"     // all at one address
)

// newWorld checks what the configuration says about behaviours, and adds up their shares.
func newWorld(cfg Config) (*world, error) {
	w := &world{cfg: cfg}
	for name := range cfg.Shares {
		if behaviourNamed(name) == nil {
			return nil, fmt.Errorf("cannot set a share: no behaviour %q", name)
		}
	}
	for host, name := range cfg.Force {
		if behaviourNamed(name) == nil {
			return nil, fmt.Errorf("cannot force %q: no behaviour %q", host, name)
		}
	}
	only := map[string]bool{}
	for _, name := range cfg.Only {
		if behaviourNamed(name) == nil {
			return nil, fmt.Errorf("cannot keep to it: no behaviour %q", name)
		}
		only[name] = true
	}
	shares := make([]float64, len(behaviours))
	rest, sum := 1.0, 0.0
	for i := range behaviours {
		b := &behaviours[i]
		share, set := cfg.Shares[b.Name]
		switch {
		case set && (share < 0 || share > 1 || math.IsNaN(share)):
			return nil, fmt.Errorf("cannot set the share of %q: %v is not from 0 to 1", b.Name, share)
		case len(only) > 0 && !only[b.Name]:
			share = 0
		case !set && b.slows && cfg.oneAddress && len(only) == 0: // one such host would slow the whole web
		case !set:
			share = b.Share
		}
		shares[i] = share
		sum += share
		if b.Name != nameOK {
			rest -= share
		}
	}
	if len(only) > 0 {
		// Behaviours that no host has of itself are wanted here, all alike.
		if sum == 0 {
			for i := range behaviours {
				if only[behaviours[i].Name] {
					shares[i] = 1
					sum++
				}
			}
		}
	} else {
		// What is taken from or given to others is given to or taken from the hosts that are simply well.
		if rest < -1e-9 {
			return nil, fmt.Errorf("cannot divide the hosts: shares add up to %.3f", 1-rest)
		}
		sum += max(rest, 0) - shares[0]
		shares[0] = max(rest, 0)
	}
	upto := 0.0
	for i, share := range shares {
		if share == 0 {
			continue
		}
		upto += share / sum
		w.chosen = append(w.chosen, &behaviours[i])
		w.cumulative = append(w.cumulative, upto)
	}
	w.cumulative[len(w.cumulative)-1] = 1
	return w, nil
}

// behaviour says how a host behaves. The host is lower-case ASCII, as an origin's is.
func (w *world) behaviour(host string) *Behaviour {
	if name, ok := w.cfg.Force[host]; ok {
		return behaviourNamed(name)
	}
	if label, ok := strings.CutSuffix(host, zooSuffix); ok {
		label = label[strings.LastIndexByte(label, '.')+1:]
		if b := behaviourNamed(label); b != nil {
			return b
		}
	}
	// Addresses have no name to redirect or to certify, and longer names would not survive a "www." put before them.
	if strings.HasSuffix(host, landingSuffix) || len(host) > 249 || isAddr(host) {
		return &behaviours[0]
	}
	// A site and its www. are one site, so that a redirect between the two ends.
	u := unit(w.draw(strings.TrimPrefix(host, "www."), streamBehaviour))
	i := sort.SearchFloat64s(w.cumulative, u)
	if i < len(w.cumulative)-1 && w.cumulative[i] == u {
		i++
	}
	return w.chosen[i]
}

// isAddr reports whether a host is an IP address. A name that ends in a digit is rare enough to be parsed.
func isAddr(host string) bool {
	if host == "" {
		return false
	}
	if c := host[len(host)-1]; strings.IndexByte(host, ':') < 0 && (c < '0' || c > '9') {
		return false
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// address is where a host lives, provided that its name resolves.
func (w *world) address(host string, b *Behaviour) netip.Addr {
	h := w.draw(host, streamAddress)
	from := w.ordinary
	switch {
	case b.name == nameSix, b.name == nameSixBesideHole:
		return netip.IPv6Loopback()
	case b.name == nameZero:
		return netip.IPv4Unspecified()
	case b.place == placeNobody && !w.single:
		from = w.nobody
	case b.place == placeHole && len(w.holes) > 0:
		from = w.holes
	case b.place == placePlainOnly && !w.single:
		from = w.plain
	case strings.HasSuffix(host, hotSuffix), w.cfg.HotShare > 0 && unit(w.draw(host, streamHot)) < w.cfg.HotShare:
		return w.hot
	}
	return from[h%uint64(len(from))]
}

// lie is an address that a host is said to live at and does not: nobody is there.
func (w *world) lie() netip.Addr { return placesFrom(9, 1)[0] }

// beside are the addresses of a host that has a black hole, too, where there are any.
func (w *world) beside(host string, b *Behaviour) []netip.Addr {
	addrs := []netip.Addr{w.address(host, b)}
	if len(w.holes) > 0 {
		addrs = append(addrs, w.holes[w.draw(host, streamDetail)%uint64(len(w.holes))])
	}
	return addrs
}

// addresses are n addresses of a host that has several, in turn from one on. Of the hot ones it has none but the hot one.
func (w *world) addresses(host string, b *Behaviour, from, n int) []netip.Addr {
	first := w.address(host, b)
	at := slices.Index(w.ordinary, first)
	all := make([]netip.Addr, n)
	for i := range all {
		all[i] = first
		if at >= 0 {
			all[i] = w.ordinary[(at+from+i)%len(w.ordinary)]
		}
	}
	return all
}

// body is the file that a host serves when it is well.
func (w *world) body(host string) content {
	block := w.bodies.at(int(w.draw(host, streamBody) % uint64(w.bodies.len())))
	return content{block: block, total: int64(len(block))}
}
