package simweb

import (
	"net/netip"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// This file is the pure half of the bad network: which fault a connection has, and which outcomes a fault explains.

// ChaosConfig configures the bad network. Shares are of connections unless said otherwise; the rest is undisturbed.
type ChaosConfig struct {
	Seed uint64

	Latency    float64       // share delayed, both ways
	MostDelay  time.Duration // the longest delay; 0: 200 ms
	Bandwidth  float64       // share whose answers pass at LeastBytes a second, up to 100 times as many
	LeastBytes int           // 0: 4096
	Blackhole  float64       // share that falls silent after some bytes of the answer
	Reset      float64       // share reset after some bytes of the answer
	Close      float64       // share closed after some bytes of the answer
	Holes      float64       // share of addresses that are black holes; none on a Network of the caller's
	Loss       float64       // share of lost packets to and from the name server
}

// DefaultChaos disturbs two connections of three, and makes one of three fail.
func DefaultChaos(seed uint64) ChaosConfig {
	return ChaosConfig{Seed: seed, Latency: 0.25, Bandwidth: 0.1, Blackhole: 0.06, Reset: 0.1, Close: 0.1, Holes: 0.05,
		Loss: 0.1}
}

// FaultKind is what may happen to a connection.
type FaultKind uint8

// The kinds of faults.
const (
	FaultNone FaultKind = iota
	FaultLatency
	FaultBandwidth
	FaultBlackhole
	FaultReset
	FaultClose
	FaultHole    // no connection: the address is a black hole
	FaultLoss    // a packet about the name was lost
	FaultPackets // packets of any kind were lost
)

var faultNames = [...]string{"none", "latency", "bandwidth", "blackhole", "reset", "close", "hole", "loss", "packets"}

// String returns the kind in a word.
func (k FaultKind) String() string { return faultNames[k] }

// Fault is what happens to one connection.
type Fault struct {
	Kind  FaultKind
	After int           // bytes of the answer before the fault
	Delay time.Duration // each way
	Rate  int           // bytes a second
}

// Explains returns the outcomes that a fault may cause, besides that of the undisturbed web.
func (f Fault) Explains() []exchange.Outcome {
	switch f.Kind {
	case FaultBandwidth, FaultBlackhole:
		return []exchange.Outcome{exchange.Timeout}
	case FaultReset:
		return []exchange.Outcome{exchange.Reset}
	case FaultClose:
		// A cut body that the connection's end ends looks whole, so the outcome is answered.
		return []exchange.Outcome{exchange.ClosedEarly, exchange.Answered}
	case FaultHole:
		return []exchange.Outcome{exchange.ConnectTimeout}
	case FaultLoss:
		return []exchange.Outcome{exchange.DNSTimeout}
	case FaultPackets:
		// Without its reset packet, which is not repeated, a reset is a time-out.
		return []exchange.Outcome{exchange.DNSTimeout, exchange.ConnectTimeout, exchange.Timeout}
	}
	return nil
}

// FaultOf returns the fault of the nth connection, from 0, for a host. It depends on these and the seed alone.
func (c ChaosConfig) FaultOf(host string, nth int) Fault {
	draw := func(stream uint64) uint64 {
		return mix(xxhash.Sum64String(host) + mix(c.Seed+stream)*uint64(2*nth+1))
	}
	u, v := unit(draw(1)), unit(draw(2))
	for _, kind := range []struct {
		share float64
		kind  FaultKind
	}{{c.Latency, FaultLatency}, {c.Bandwidth, FaultBandwidth}, {c.Blackhole, FaultBlackhole}, {c.Reset, FaultReset},
		{c.Close, FaultClose}} {
		if u -= kind.share; u >= 0 {
			continue
		}
		f := Fault{Kind: kind.kind}
		switch f.Kind {
		case FaultLatency:
			f.Delay = time.Duration(v * float64(c.mostDelay()))
		case FaultBandwidth:
			f.Rate = int(float64(c.leastBytes()) * (1 + 99*v*v))
		default:
			// Equally often at once, and within the first 100, 1,000 or 10,000 bytes: of handshake, head or body.
			f.After = int(draw(3) % []uint64{1, 100, 1000, 10_000}[draw(4)%4])
		}
		return f
	}
	return Fault{}
}

func (c ChaosConfig) mostDelay() time.Duration {
	if c.MostDelay > 0 {
		return c.MostDelay
	}
	return 200 * time.Millisecond
}

func (c ChaosConfig) leastBytes() int {
	if c.LeastBytes > 0 {
		return c.LeastBytes
	}
	return 4096
}

// hole reports whether an address is a black hole.
func (c ChaosConfig) hole(addr netip.Addr) bool {
	return unit(mix(xxhash.Sum64(addr.AsSlice())+mix(c.Seed+5))) < c.Holes
}

// loses reports whether the nth packet about a host, from 0, is lost, to the name server or back.
func (c ChaosConfig) loses(host string, nth int) bool {
	return unit(mix(xxhash.Sum64String(host)+mix(c.Seed+6)*uint64(2*nth+1))) < c.Loss
}
