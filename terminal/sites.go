package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/parser"
)

// Sites shows each site of a scan in a line, as soon as it is judged: the site, its finding, how many AI tokens it
// blocks, and the first of these tokens, those named in the file before others. If no file decides, the line shows the
// status, or how the exchange ended.
type Sites struct {
	w        io.Writer
	page     *page
	registry *tokens.Registry
}

// NewSites returns Sites that write to a terminal.
func NewSites(w io.Writer, registry *tokens.Registry) *Sites {
	return &Sites{w: w, page: newPage(w, ColorAuto), registry: registry}
}

// The widths of the columns between the site and the last column. The last one is left out if it would leave the site
// fewer than leastSite columns.
const (
	findingWidth = 12 // of the longest finding
	blockedWidth = 13 // "✗ 999 blocked"
	leastSite    = 24
)

// Add writes a site's line.
func (s *Sites) Add(site *audit.Site) error {
	p := s.page
	p.width = max(Width(s.w), minWidth) // of a window that may be resized
	o := site.Fetch.Answered
	if !o.IsValid() {
		o = site.Origin
	}
	verdict, more := styled(dim, "? unknown"), site.Fetch.Outcome.String()
	if site.Known() {
		blocked := s.blocked(site)
		verdict, more = styled(green, "%s 0 blocked", marks["allowed"]), fmt.Sprintf("status %d", site.Fetch.Status)
		if len(blocked) > 0 {
			verdict = styled(red, "%s %d blocked", marks["blocked"], len(blocked))
		}
		if site.Report.Access == parser.AccessConditional {
			more = strings.Join(blocked, ", ")
		}
	}
	row := []piece{text(strings.TrimPrefix(o.String(), "https://")), text(site.Report.Finding.String()), verdict,
		styled(dim, "%s", more)}
	room := p.width - findingWidth - blockedWidth - 3*gap
	if room >= leastSite+minLast {
		room = max(leastSite, room/2)
	} else {
		row, room = row[:3], room+gap
	}
	p.row(&table{}, row, []int{min(maxColumn, room), findingWidth, blockedWidth})
	if err := p.end(); err != nil {
		return fmt.Errorf("cannot write a line: %w", err)
	}
	return nil
}

// blocked names the AI tokens that a site blocks, the tokens named in its file first.
func (s *Sites) blocked(site *audit.Site) (names []string) {
	r := &site.Report
	for _, named := range []bool{true, false} {
		for id := range s.registry.Tokens {
			t, id := &s.registry.Tokens[id], uint16(id)
			blocked := r.Access == parser.AccessFullDisallow || r.Access == parser.AccessConditional &&
				slices.Contains(r.Blocked, id)
			if blocked && t.Category == "ai" && slices.Contains(r.Named, id) == named {
				names = append(names, t.Name)
			}
		}
	}
	return names
}
