package audit

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/parser"
)

// This file computes the Policy: a file's effect on all crawlers, as a value. Files with the same cells and signals
// have the same policy, whatever their text. Definitions has each meaning of "blocks", as a function of a cell.

// Cell is the effect of a file on one crawler: a set of facts.
type Cell uint8

// The facts. A cell without CellOwn, CellFallback and CellStar follows no group.
const (
	CellBlocked  Cell = 1 << iota // the groups that it follows deny everything: Blocked
	CellPartial                   // the groups that it follows deny something: Partial
	CellOwn                       // a group names it, by the strict reading, and decides
	CellFallback                  // a group that names one of its fallbacks decides
	CellStar                      // the group of `*` decides
	CellRoot                      // its own group denies `/`; for `*`, that of `*`
	// the group that it follows is DPIAll; a crawler that follows no other group counts by the group of `*`, even if it is
	// known to ignore `*`
	CellDPIAll
	CellLenient // only the lenient reading finds its name, which no definition counts
)

// Decision returns the verdict of the groups that the crawler follows.
func (c Cell) Decision() Decision {
	switch {
	case c&CellBlocked != 0:
		return Blocked
	case c&CellPartial != 0:
		return Partial
	}
	return Allowed
}

// Definition is one meaning of "this site blocks that crawler": see docs/definitions.md. Its name is a column of
// token_stats.
type Definition struct {
	Name   string
	Blocks func(Cell) bool
}

// Definitions are all of them, in the order of docs/definitions.md. All but rfc_effective are over sites with finding
// rules.
var Definitions = [...]Definition{
	{"mention", func(c Cell) bool { return c&CellOwn != 0 }},
	{"explicit_root", func(c Cell) bool { return c&CellOwn != 0 && c&CellRoot != 0 }},
	{"full", func(c Cell) bool { return c&CellBlocked != 0 }},
	{"any", func(c Cell) bool { return c&(CellBlocked|CellPartial) != 0 }},
	{"dpi_all", func(c Cell) bool { return c&CellDPIAll != 0 }},
	// of sites with an HTTP status; parser.AccessFullDisallow blocks, too
	{"rfc_effective", func(c Cell) bool { return c&CellBlocked != 0 }},
}

// NamedCell is the cell of a registry token that a group of a file names.
type NamedCell struct {
	Token uint16 // index into tokens.Registry.Tokens
	Cell  Cell
}

// Policy is the effect of a file on all crawlers. It keeps only what the file itself says; Cells derives the rest from
// a registry. Its slices belong to the Report. The zero value is that of a site without a file in force.
type Policy struct {
	// ID is a hash of the fields below except Lenient; tokens count by their names. A registry that gains a token, an
	// alias or a fallback changes the ID only of files that name the token. 0: there is no policy.
	ID uint64

	Star  Cell        // of an agent that no group names
	Named []NamedCell // tokens that a group names, by the strict reading, in alphabetical order
	// Report.ContentSignal, whose unknown keys and equal keys are in alphabetical order, not in that of the file
	ContentSignal []byte
	ContentUsage  Preferences // what Content-Usage says of `/` for agents of `*`
	Licensed      bool        // there is a License with an absolute URL
	ManagedBy     string      // Report.ManagedBy

	Lenient []uint16 // tokens of which only the lenient reading finds the name
}

// Cells appends the cell of each token of the registry with which the site was judged.
func (p *Policy) Cells(dst []Cell, registry *tokens.Registry) []Cell {
	from := len(dst)
	dst = append(dst, make([]Cell, len(registry.Tokens))...)
	cells := dst[from:]
	for _, n := range p.Named {
		cells[n.Token] = n.Cell
	}
	for i := range cells {
		if cells[i]&CellOwn == 0 {
			cells[i] = p.unnamed(cells, &registry.Tokens[i])
		}
	}
	for _, id := range p.Lenient {
		cells[id] |= CellLenient
	}
	return dst
}

// unnamed returns the cell of a token that no group names.
func (p *Policy) unnamed(cells []Cell, t *tokens.Token) Cell {
	for _, next := range t.Chain {
		if own := cells[next]; own&CellOwn != 0 {
			return own&(CellBlocked|CellPartial|CellDPIAll) | CellFallback
		}
	}
	cell := p.Star & CellDPIAll
	if t.HeedsStar {
		cell |= p.Star & (CellBlocked | CellPartial | CellStar)
	}
	return cell
}

// ranked are the named tokens of a site by the alphabetical order of names, for reuse. The order of a registry must not
// change a policy's ID.
type ranked struct {
	cells   []Cell   // by rank
	present []uint64 // a bit for each rank
}

// setPolicies sets the policies of a judged file: in the dialect in which it was parsed, without its managed blocks,
// and in the RFC dialect.
func (a *Auditor) setPolicies(s *Site) {
	r, c := &s.Report, s.Report.scratch
	a.setPolicy(s)
	if r.ManagedBlock {
		c.unmanaged = withoutManaged(c.unmanaged[:0], s.Fetch.Body, s.Robots.Dialect())
		if r.Unmanaged = r.Policy.ID; len(c.unmanaged) < len(s.Fetch.Body) {
			// else the comment is behind a record, and there is nothing to leave out
			a.judgeTwin(c.unmanaged, s.Robots.Dialect(), func(twin *Report) { r.Unmanaged = twin.Policy.ID })
		}
	}
	if s.Robots.SameInRFC() {
		r.RFCPolicy = r.Policy
		return
	}
	a.judgeTwin(s.Fetch.Body, parser.RFC, func(twin *Report) {
		p := twin.Policy
		c.rfcNamed = append(c.rfcNamed[:0], p.Named...)
		c.rfcLenient = append(c.rfcLenient[:0], p.Lenient...)
		c.rfcSignal = append(c.rfcSignal[:0], p.ContentSignal...)
		p.Named, p.Lenient, p.ContentSignal = c.rfcNamed, c.rfcLenient, c.rfcSignal
		r.RFCPolicy = p
	})
}

// judgeTwin judges another reading of a site's file. The report is valid until take returns.
func (a *Auditor) judgeTwin(body []byte, dialect parser.Dialect, take func(*Report)) {
	var twin *Site
	select {
	case twin = <-a.twins:
	default:
		twin = new(Site)
	}
	twin.IsFile, twin.Dialect, twin.Fetch.Body = true, dialect, body
	a.Judge(twin)
	take(&twin.Report)
	twin.Reset()
	select {
	case a.twins <- twin:
	default: // more goroutines judge than twins are kept
	}
}

// keptTwins bounds the Sites that an Auditor keeps for second readings.
const keptTwins = 16

// setPolicy makes Report.Policy from the verdicts.
func (a *Auditor) setPolicy(s *Site) {
	r, c := &s.Report, s.Report.scratch
	if len(c.ranked.cells) != len(a.names) {
		c.ranked = ranked{make([]Cell, len(a.names)), make([]uint64, (len(a.names)+63)/64)}
	}
	p := &r.Policy
	p.ContentSignal, p.Licensed, p.ManagedBy = c.ordered(r.ContentSignal), r.License != nil, r.ManagedBy
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		switch {
		case i == 0: // of `*`
			p.Star, p.ContentUsage = cellOf(v), v.ContentUsage
		case v.ID < 0 || v.Via != ViaOwn:
		case !v.Lenient:
			rank := a.ranks[v.ID]
			c.ranked.cells[rank] = cellOf(v)
			c.ranked.present[rank/64] |= 1 << (rank % 64)
		case c.own[v.ID] == 0:
			c.namedLeniently = append(c.namedLeniently, uint16(v.ID))
		}
	}
	p.Lenient = c.namedLeniently
	if len(r.Named) > 0 {
		for word, set := range c.ranked.present {
			for ; set != 0; set &= set - 1 {
				rank := 64*word + bits.TrailingZeros64(set)
				c.named = append(c.named, NamedCell{a.byRank[rank], c.ranked.cells[rank]})
			}
			c.ranked.present[word] = 0
		}
	}
	p.Named = c.named
	c.content = a.identify(p, c.content[:0])
}

// identify sets the ID of a policy, which is a hash of all its other fields. It appends what was hashed to dst, and
// returns that.
func (a *Auditor) identify(p *Policy, dst []byte) []byte {
	content := append(dst, byte(p.Star))
	for _, named := range p.Named {
		content = appendText(content, a.folded[named.Token])
		content = append(content, byte(named.Cell))
	}
	content = append(content, 0) // no name is empty
	content = appendText(content, view(p.ContentSignal))
	content = append(content, byte(p.ContentUsage.TrainAI), byte(p.ContentUsage.Search), 0)
	if p.Licensed {
		content[len(content)-1] = 1
	}
	content = appendText(content, p.ManagedBy)
	p.ID = max(xxhash.Sum64(content), 1)
	return content
}

// Identify completes a policy that was made of stored rows: it puts cells and signal in order, and sets the ID.
func (a *Auditor) Identify(p *Policy) {
	slices.SortFunc(p.Named, func(x, y NamedCell) int { return cmp.Compare(a.ranks[x.Token], a.ranks[y.Token]) })
	p.ContentSignal = new(scratch).ordered(p.ContentSignal)
	a.identify(p, nil)
}

// ordered returns a content signal in canonical form with its pairs in an order that does not depend on the file's.
func (c *scratch) ordered(signal []byte) []byte {
	if bytes.IndexByte(signal, ',') < 0 {
		return signal
	}
	c.pairs, c.signal = c.pairs[:0], c.signal[:0]
	for pair := range bytes.SplitSeq(signal, []byte(", ")) {
		c.pairs = append(c.pairs, pair)
	}
	slices.SortFunc(c.pairs, func(x, y []byte) int {
		return cmp.Or(cmp.Compare(signalKey(keyOf(x)), signalKey(keyOf(y))), bytes.Compare(x, y))
	})
	for i, pair := range c.pairs {
		if i > 0 {
			c.signal = append(c.signal, ", "...)
		}
		c.signal = append(c.signal, pair...)
	}
	return c.signal
}

func keyOf(pair []byte) []byte { return pair[:bytes.IndexByte(pair, '=')] }

// cellOf returns the cell of a row of verdicts.
func cellOf(v *Verdict) (cell Cell) {
	switch v.Decision {
	case Blocked:
		cell = CellBlocked
	case Partial:
		cell = CellPartial
	}
	switch v.Via {
	case ViaOwn:
		cell |= CellOwn
	case ViaStar:
		cell |= CellStar
	}
	if !v.RootAllowed {
		cell |= CellRoot
	}
	if v.DPI == DPIAll {
		cell |= CellDPIAll
	}
	return cell
}

// appendText appends a text after its length.
func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}
