package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// Loss is what is lost when the process or the power ends.
type Loss int

// The losses. Values above Scrambled are Scrambled with another seed.
const (
	Nothing   Loss = iota // the process was killed: the system still writes everything
	Unsynced              // everything that was not synced
	Contents              // bytes that were not synced; names are kept
	Scrambled             // a random choice of unsynced names and bytes
)

func (l Loss) String() string {
	if l < Scrambled {
		return [...]string{"nothing lost", "all lost that was not synced", "bytes lost, names kept"}[l]
	}
	return fmt.Sprintf("scrambled with seed %d", l-Scrambled)
}

// Restart ends all use of the Disk and returns the Disk that is left.
func (d *Disk) Restart(loss Loss) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	after := NewDisk()
	after.Room, after.NoLinks = d.Room, d.NoLinks
	s := &survival{loss: loss, random: rand.New(rand.NewPCG(uint64(loss), 1)), nodes: map[*node]*node{}}
	if loss == Nothing {
		after.root = s.alive(d.root)
	} else {
		after.root = s.of(d.root)
	}
	return after
}

// survival copies what survives a loss.
type survival struct {
	loss   Loss
	random *rand.Rand
	nodes  map[*node]*node // a file with two names is copied once
}

// alive copies a node with its unsynced changes.
func (s *survival) alive(n *node) *node {
	if n == nil {
		return nil
	}
	if kept := s.nodes[n]; kept != nil {
		return kept
	}
	kept := newFolder()
	s.nodes[n] = kept
	kept.folder, kept.data, kept.durable, kept.lost = n.folder, slices.Clone(n.data), n.durable, n.lost
	for name, child := range n.names {
		kept.names[name] = s.alive(child)
	}
	for name, child := range n.durableNames {
		kept.durableNames[name] = s.alive(child)
	}
	for _, r := range n.pending {
		kept.pending = append(kept.pending, rename{r.from, r.to, s.alive(r.node)})
	}
	return kept
}

// of copies what a power loss leaves of a node.
func (s *survival) of(n *node) *node {
	if kept := s.nodes[n]; kept != nil {
		return kept
	}
	kept := newFolder()
	s.nodes[n] = kept
	if !n.folder {
		kept.folder, kept.data = false, slices.Clone(s.bytes(n))
		kept.durable = kept.data
		return kept
	}
	names := maps.Clone(n.durableNames)
	for _, r := range n.pending {
		if s.loss == Contents || s.loss >= Scrambled && s.random.IntN(2) == 0 {
			r.apply(names)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) { // sorted, so that a seed gives the same choices
		kept.names[name] = s.of(names[name])
		kept.durableNames[name] = kept.names[name]
	}
	return kept
}

func (s *survival) bytes(n *node) []byte {
	if s.loss < Scrambled {
		return n.durable
	}
	switch s.random.IntN(4) {
	case 0:
		return n.durable
	case 1:
		return n.data[:max(len(n.durable), s.random.IntN(len(n.data)+1))]
	case 2:
		return append(slices.Clone(n.durable), make([]byte, len(n.data)-len(n.durable))...)
	default:
		return n.data
	}
}
