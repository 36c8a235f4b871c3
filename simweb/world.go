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

// world is the pure half of the simulated web: it derives a host from the seed and its name alone. It has no socket and
// no state that requests change, so the server and the truth share it.
type world struct {
	cfg    Config
	single bool // the system routes only 127.0.0.1, so every address has a listener

	hot      netip.Addr   // of hot hosts
	ordinary []netip.Addr // of other hosts
	plain    []netip.Addr // with a listener for plain HTTP only
	vacant   []netip.Addr // without a listener
	holes    []netip.Addr // where a client's first packet is lost; empty where the system cannot do so
	six      bool         // ::1 has listeners, for hosts with IPv6 only

	httpPort, tlsPort uint16

	chosen     []*Behaviour // behaviours with a share, in the table's order
	cumulative []float64    // upper ends of their shares, the last is 1

	bodies *bodyPool
}

// The streams of a host's hash. Each question has its own, so that answers are independent.
const (
	streamBehaviour = iota + 1
	streamAddress
	streamHot
	streamBody
	streamServer
	streamStatus
	streamDetail
)

// draw returns the host's 64 bits for a stream.
func (w *world) draw(host string, stream uint64) uint64 {
	return mix(xxhash.Sum64String(host) + mix(w.cfg.Seed+stream))
}

// mix is the finaliser of splitmix64: every bit of x affects every bit of the result.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit maps 64 bits to [0, 1).
func unit(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// Suffixes of names with a special meaning.
const (
	zooSuffix     = ".zoo.test"     // reset-head.zoo.test, a7.reset-head.zoo.test: the behaviour of that name
	landingSuffix = ".landing.test" // targets of redirects to other hosts: always ok
	hotSuffix     = ".hot.test"     // all at one address
)

// newWorld checks the configured behaviours and adds up their shares.
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
			return nil, fmt.Errorf("cannot restrict the web: no behaviour %q", name)
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
		case !set && b.slows && cfg.oneAddress && len(only) == 0: // one such host would slow all others
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
		// Only behaviours without a share: all get the same.
		if sum == 0 {
			for i := range behaviours {
				if only[behaviours[i].Name] {
					shares[i] = 1
					sum++
				}
			}
		}
	} else {
		// ok takes what the other behaviours leave.
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

// behaviour returns a host's behaviour. The host is lower-case ASCII, like an origin's.
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
	// Addresses have no name to redirect or certify, and longer names have no room for "www.".
	if strings.HasSuffix(host, landingSuffix) || len(host) > 249 || isAddr(host) {
		return &behaviours[0]
	}
	// A site and its www. share a behaviour, so that a redirect between them ends.
	u := unit(w.draw(strings.TrimPrefix(host, "www."), streamBehaviour))
	i := sort.SearchFloat64s(w.cumulative, u)
	if i < len(w.cumulative)-1 && w.cumulative[i] == u {
		i++
	}
	return w.chosen[i]
}

// isAddr reports whether a host is an IP address. Names that end in a digit are rare, so only these are parsed.
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

// address returns a host's address, if its name resolves.
func (w *world) address(host string, b *Behaviour) netip.Addr {
	h := w.draw(host, streamAddress)
	from := w.ordinary
	switch {
	case b.name == nameSix, b.name == nameSixBesideHole:
		return netip.IPv6Loopback()
	case b.name == nameZero:
		return netip.IPv4Unspecified()
	case b.place == placeVacant && !w.single:
		from = w.vacant
	case b.place == placeHole && len(w.holes) > 0:
		from = w.holes
	case b.place == placePlainOnly && !w.single:
		from = w.plain
	case strings.HasSuffix(host, hotSuffix), w.cfg.HotShare > 0 && unit(w.draw(host, streamHot)) < w.cfg.HotShare:
		return w.hot
	}
	return from[h%uint64(len(from))]
}

// unused returns an address without a listener, for forged answers.
func (w *world) unused() netip.Addr { return placesFrom(9, 1)[0] }

// beside returns a host's address and, where they exist, a black hole.
func (w *world) beside(host string, b *Behaviour) []netip.Addr {
	addrs := []netip.Addr{w.address(host, b)}
	if len(w.holes) > 0 {
		addrs = append(addrs, w.holes[w.draw(host, streamDetail)%uint64(len(w.holes))])
	}
	return addrs
}

// addresses returns n addresses of a host with several, in turn from a given one on. A hot host has only the hot one.
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

// body returns a host's file.
func (w *world) body(host string) content {
	block := w.bodies.at(int(w.draw(host, streamBody) % uint64(w.bodies.len())))
	return content{block: block, total: int64(len(block))}
}
