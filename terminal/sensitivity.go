package terminal

import (
	"fmt"
	"io"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// Sensitivity prints how much one token's share depends on choices, one row per choice.
func Sensitivity(w io.Writer, s *summary.Sensitivity, when Color) error {
	p, scans := newPage(w, when), "scan "+s.ScanID
	if n := len(s.Scans); n > 1 {
		scans = fmt.Sprintf("%d scans together, the last one %s,", n, s.ScanID)
	}
	p.leftOut(s.LeftOut)
	p.flow(0, words(styled(bold, "%s", s.Token), textf("blocked by the definition %s, %s of %s, registry %s,",
		s.Definition, scans, s.ScanDate, s.RegistryVersion), textf("observer %s.", s.Observer)))
	p.line()
	t := &table{wrap: true}
	t.add(styled(dim, "choice"), piece{text: "blocking", style: dim, right: true}, piece{text: "of", style: dim,
		right: true}, piece{text: "share", style: dim, right: true}, styled(dim, "over"))
	for i, r := range s.Rows {
		of, share, name := printable.Number(r.Of), "n/a", text(r.ID)
		sites, about := printable.Number(r.Sites), r.About
		if r.Why != "" {
			sites, of, about = "", "", r.About+" ("+r.Why+")"
		}
		if r.Share != nil {
			share = fmt.Sprintf("%.2f %%", 100**r.Share)
		}
		if i == 0 {
			name.style = bold
		}
		t.add(name, piece{text: sites, right: true}, piece{text: of, right: true}, piece{text: share, right: true},
			text(about))
	}
	p.table(t)
	return p.end()
}
