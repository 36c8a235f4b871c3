package siterows

import (
	"net/netip"
	"unicode/utf8"
	"unsafe"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// slab hands out slices that stay valid until reset. A full slab begins a new block; the old one lives as long as its
// slices.
type slab[T any] struct{ block []T }

const (
	slabStart = 256 << 10 // bytes of the first block
	slabKeep  = 8 << 20   // maximum bytes of a block kept for the next batch
)

func (s *slab[T]) take(n int) []T {
	if cap(s.block)-len(s.block) < n {
		size := int(unsafe.Sizeof(*new(T)))
		s.block = make([]T, 0, max(slabStart/size, 2*cap(s.block), n))
	}
	at := len(s.block)
	s.block = s.block[:at+n]
	return s.block[at : at+n : at+n]
}

func (s *slab[T]) giveBack(n int) { s.block = s.block[:len(s.block)-n] }

func (s *slab[T]) reset() {
	if cap(s.block)*int(unsafe.Sizeof(*new(T))) > slabKeep {
		s.block = nil
	}
	s.block = s.block[:0]
}

func (s *slab[T]) copy(list []T) []T {
	kept := s.take(len(list))
	copy(kept, list)
	return kept
}

// text copies raw as valid UTF-8 of at most limit bytes.
func (c *Copier) text(raw []byte, limit int) string {
	if len(raw) == 0 {
		return ""
	}
	if len(raw) <= limit && utf8.Valid(raw) {
		kept := c.bytes.take(len(raw))
		copy(kept, raw)
		return unsafe.String(&kept[0], len(kept))
	}
	room := min(limit, 3*len(raw))
	kept := c.bytes.take(room)
	n := len(schema.AppendValid(kept[:0], raw, room))
	c.bytes.giveBack(room - n)
	return unsafe.String(unsafe.SliceData(kept), n)
}

// ours is text for an immutable string, which is copied only if it must change.
func (c *Copier) ours(s string, limit int) string {
	if len(s) <= limit && utf8.ValidString(s) {
		return s
	}
	return c.text(unsafe.Slice(unsafe.StringData(s), len(s)), limit)
}

// maxOrigin exceeds the length of every origin: scheme, brackets, a host of 253 bytes, and a port.
const maxOrigin = 300

func (c *Copier) origin(o origin.Origin) string {
	kept := c.bytes.take(maxOrigin)
	text := o.AppendTo(kept[:0])
	c.bytes.giveBack(maxOrigin - len(text))
	return unsafe.String(unsafe.SliceData(text), len(text))
}

func (c *Copier) target(t exchange.Target) string {
	room := maxOrigin + len(exchange.RobotsPath) + len(t.Path)
	text := t.AppendTo(c.bytes.take(room)[:0])
	if len(text) > schema.MaxURL || !utf8.Valid(text) {
		return c.text(text, schema.MaxURL)
	}
	c.bytes.giveBack(room - len(text))
	return unsafe.String(unsafe.SliceData(text), len(text))
}

func (c *Copier) address(a netip.Addr) string {
	const room = 64 // at most 45 without a zone
	text := a.WithZone("").AppendTo(c.bytes.take(room)[:0])
	c.bytes.giveBack(room - len(text))
	return unsafe.String(unsafe.SliceData(text), len(text))
}
