package units

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// TestRule gives the rule the rows of one site in every order. A row is a finding, the time of the fetch, and for an
// archive the scheme; the first row is the one that counts. A row `=` belongs to the scan before.
func TestRule(t *testing.T) {
	parse := func(text string, at int) row {
		var word, scheme string
		r := row{seq: int64(at)}
		fmt.Sscan(text, &word, &r.fetched, &scheme)
		word, body, _ := strings.Cut(word, "#")
		r.finding, r.known = audit.FindingNamed(word)
		r.plain = scheme == "http"
		for _, c := range body {
			r.body = int64(c)
		}
		return r
	}
	f := func(folded, disagree int64, texts ...string) {
		t.Helper()
		for _, order := range permutations(len(texts)) {
			var rows []row
			for _, i := range order {
				rows = append(rows, parse(texts[i], i))
			}
			c := chooser{best: map[int64]row{}, choice: commit.Choice{Superseded: map[string]*roaring64.Bitmap{}},
				scans: []*commit.Scan{{Manifest: &commit.Manifest{ScanID: "s"}}}}
			for i := range rows {
				c.add(1, &rows[i])
			}
			if best := c.best[1].seq; best != 0 || c.choice.Replaced() != int64(len(rows)-1) || c.choice.Folded != folded ||
				c.choice.Disagree != disagree {
				t.Errorf("%q in the order %v: row %d counts, %+v", texts, order, best, c.choice)
			}
		}
	}
	// An observation beats a failure, whichever is later.
	for _, observed := range []string{"rules", "no_rules", "html", "none", "refused"} {
		for _, failed := range []string{"not_asked", "challenged", "rate_limited", "unreachable", "server_error",
			"a_word_of_a_later_version"} {
			f(0, 0, observed+" 1", failed+" 2")
			f(0, 0, observed+" 2", failed+" 1")
			f(1, 0, observed+" 1 http", failed+" 2 https")
			f(1, 0, observed+" 1 https", failed+" 2 http")
		}
	}
	// Among observations, and among failures, the later counts.
	f(0, 0, "none 3", "rules 2", "rules 1")
	f(0, 0, "unreachable 3", "challenged 2", "not_asked 1")
	// Captures by https before those by http.
	f(1, 1, "none 1 https", "rules 2 http")
	f(1, 1, "rules#a 1 https", "rules#b 2 http")
	f(1, 0, "rules#a 1 https", "rules#a 2 http")
	f(1, 0, "server_error 1 https", "unreachable 2 http")
	// Fetched in one millisecond: what was found decides, and not the scan.
	f(0, 0, "rules#b 1", "rules#a 1")
	f(0, 0, "rules 1", "none 1")
}

// permutations returns all orders of so many rows.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, rest := range permutations(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(rest), at, n-1))
		}
	}
	return all
}

// TestFoldedKey shows which captures belong to one site, and to which entry of a list.
func TestFoldedKey(t *testing.T) {
	for _, key := range []struct {
		port      int32
		requested string
		want      int64
	}{
		{443, "https", schema.SiteID("h", 443, "auto")},
		{80, "http", schema.SiteID("h", 443, "auto")},
		{8080, "http", schema.SiteID("h", 8080, "auto")},
		{8080, "https", schema.SiteID("h", 8080, "auto")},
		{80, "https", schema.SiteID("h", 80, "auto")},
		{21, "ftp", schema.SiteID("h", 21, "ftp")},
	} {
		if _, site := schema.FoldedKey(true, "h", key.port, key.requested); site != key.want {
			t.Errorf("%+v: site %d", key, site)
		}
	}
}
