package surveytest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// Registry is small enough to count by hand: an AI token, one with a fallback, and one that ignores `*`.
func Registry() *tokens.Registry {
	return RegistryOf("test", []tokens.Token{
		{Name: "GPTBot", Category: "ai", Operator: "OpenAI", Purpose: "training", HeedsStar: true},
		{Name: "Googlebot", Category: "search", Operator: "Google", Purpose: "search", HeedsStar: true},
		{Name: "Googlebot-News", Category: "search", Operator: "Google", Purpose: "search", HeedsStar: true,
			Fallback: []string{"Googlebot"}},
		{Name: "AdsBot-Google", Category: "search", Operator: "Google", Purpose: "ads", HeedsStar: false},
	})
}

// RegistryOf makes a registry of these tokens.
func RegistryOf(version string, rows []tokens.Token) *tokens.Registry {
	r, err := tokens.New(version, rows)
	if err != nil {
		panic(err)
	}
	return r
}

const (
	gpt = iota
	google
	news
	ads
)

// verdict is a row of verdicts in short.
func verdict(token string, id int, via audit.Via, d audit.Decision, root bool, dpi audit.DPI) audit.Verdict {
	return audit.Verdict{Token: []byte(token), ID: id, Via: via, Decision: d, RootAllowed: root, DPI: dpi}
}

// lenient is a row of verdicts that only the lenient reading found.
func lenient(token string, id int) audit.Verdict {
	v := verdict(token, id, audit.ViaOwn, audit.Blocked, false, audit.DPIAll)
	v.Lenient = true
	return v
}

// policyOf returns the policy of such verdicts.
func policyOf(r *audit.Report) (p audit.Policy) {
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		cell := siterows.CellOf(v.Decision.String(), v.Via.String(), !v.RootAllowed, v.DPI == audit.DPIAll)
		switch {
		case string(v.Token) == "*":
			p.Star = cell
		case v.ID >= 0 && v.Via == audit.ViaOwn && !v.Lenient:
			p.Named = append(p.Named, audit.NamedCell{Token: uint16(v.ID), Cell: cell})
		}
	}
	audit.New(Registry()).Identify(&p)
	return p
}

// Dataset writes nine sites that were judged by hand:
//
//	seq rank   host       label  answer
//	0   1      a.com      x      200: GPTBot own, blocked, / denied, dpi all; no *
//	1   500    b.com      x      200: * blocked, dpi all; no token named
//	2   5000   c.org             200: * partial, dpi some; GPTBot own allowed, and leniently too; Googlebot own partial, so News by
//	                             fallback, which is named leniently
//	3   1001   d.org      y      200: mybot own blocked, / denied, dpi all; * allowed, dpi none; GPTBot named leniently only
//	4   -      e.com             404
//	5   20000  f.com             503
//	6   7      g.org             time-out
//	7   8      h.com             opted out
//	8   9      i.com             503 and yet rules, as no scan writes it: * blocked, dpi all; MyBot2 own allowed
func Dataset(tb testing.TB) store.Store {
	tb.Helper()
	dir, err := store.NewDir(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	w, err := sink.Open(context.Background(), dir, sink.Options{ScanID: "hand", Date: "2026-11-21", Registry: Registry(),
		ToolVersion: "1.2.3", PartRows: 4})
	if err != nil {
		tb.Fatal(err)
	}
	seq := uint64(0)
	add := func(host, label string, rank int64, status int, outcome exchange.Outcome, access parser.Access,
		fill func(r *audit.Report)) {
		o, err := origin.Parse(host)
		if err != nil {
			tb.Fatal(err)
		}
		s := &audit.Site{Seq: seq, Input: host, Label: label, Rank: rank}
		s.SetOrigin(o)
		s.Fetch = exchange.Response{Outcome: outcome, Status: status, Answered: o.As(origin.HTTPS), Attempts: 1}
		if status != 0 {
			s.Fetch.Timing.Total = time.Duration(seq+1) * 10 * time.Millisecond
		}
		s.Report.Access = access
		if access == parser.AccessConditional {
			s.Report.Finding = audit.FindingRules
		}
		s.Report.Status, s.Report.Score = audit.Fail, 0
		if status == 200 {
			s.Report.Status, s.Report.Score = audit.Pass, 1
			s.Fetch.Body = make([]byte, 1000)
		}
		if fill != nil {
			fill(&s.Report)
		} else if access == parser.AccessFullAllow {
			s.Report.Verdicts = []audit.Verdict{verdict("*", -1, audit.ViaHTTP, audit.Allowed, true, audit.DPINone)}
		} else if access == parser.AccessFullDisallow {
			s.Report.Star = audit.Blocked
			s.Report.Verdicts = []audit.Verdict{verdict("*", -1, audit.ViaHTTP, audit.Blocked, false, audit.DPINone)}
		}
		if access == parser.AccessConditional {
			s.Report.Policy = policyOf(&s.Report)
		}
		if err := w.Add(s); err != nil {
			tb.Fatal(err)
		}
		seq++
	}
	conditional := parser.AccessConditional
	add("a.com", "x", 1, 200, exchange.Answered, conditional, func(r *audit.Report) {
		r.Named, r.Blocked = []uint16{gpt}, []uint16{gpt}
		r.Verdicts = []audit.Verdict{
			verdict("*", -1, audit.ViaNone, audit.Allowed, true, audit.DPINone),
			verdict("GPTBot", gpt, audit.ViaOwn, audit.Blocked, false, audit.DPIAll),
		}
		r.Evidence = []audit.Evidence{
			{Line: 1, Kind: audit.KindUnknown, Key: []byte("Foo")}, {Line: 2, Kind: audit.KindUnknown, Key: []byte("foo")},
			{Line: 3, Kind: audit.KindSitemap, Key: []byte("sitemap")}, {Line: 4, Kind: audit.KindLegacy,
				Key: []byte("noindex")},
			{Line: 5, Kind: audit.KindInvalid, Key: []byte("Crawl-Delay"), Value: []byte("ten")},
			{Line: 6, Kind: audit.KindInvalid, Value: []byte("no record")},
		}
	})
	add("b.com", "x", 500, 200, exchange.Answered, conditional, func(r *audit.Report) {
		r.Star, r.Blocked = audit.Blocked, []uint16{gpt, google, news}
		r.Verdicts = []audit.Verdict{verdict("*", -1, audit.ViaStar, audit.Blocked, false, audit.DPIAll)}
		r.Evidence = []audit.Evidence{{Line: 1, Kind: audit.KindUnknown, Key: []byte("FOO")},
			{Line: 2, Kind: audit.KindExtension, Key: []byte("crawl-delay")}, {Line: 3, Kind: audit.KindTypo,
				Key: []byte("Dissallow")}}
	})
	add("c.org", "", 5000, 200, exchange.Answered, conditional, func(r *audit.Report) {
		r.Star, r.Named, r.Partial = audit.Partial, []uint16{gpt, google}, []uint16{google, news}
		r.Verdicts = []audit.Verdict{
			verdict("*", -1, audit.ViaStar, audit.Partial, true, audit.DPISome),
			verdict("GPTBot", gpt, audit.ViaOwn, audit.Allowed, true, audit.DPINone),
			verdict("Googlebot", google, audit.ViaOwn, audit.Partial, false, audit.DPISome),
			verdict("Googlebot-News", news, audit.ViaFallback, audit.Partial, false, audit.DPISome),
			lenient("GPTBot", gpt), lenient("Googlebot-News", news),
		}
	})
	add("d.org", "y", 1001, 200, exchange.Answered, conditional, func(r *audit.Report) {
		r.Verdicts = []audit.Verdict{
			verdict("*", -1, audit.ViaStar, audit.Allowed, true, audit.DPINone),
			verdict("mybot", -1, audit.ViaOwn, audit.Blocked, false, audit.DPIAll),
			lenient("GPTBot", gpt),
		}
	})
	add("e.com", "", 0, 404, exchange.Answered, parser.AccessFullAllow, nil)
	add("f.com", "", 20000, 503, exchange.Answered, parser.AccessFullDisallow, nil)
	add("g.org", "", 7, 0, exchange.Timeout, parser.AccessFullDisallow, nil)
	add("h.com", "", 8, 0, exchange.OptedOut, parser.AccessUnknown, func(*audit.Report) {})
	add("i.com", "", 9, 503, exchange.Answered, conditional, func(r *audit.Report) {
		r.Star, r.Blocked = audit.Blocked, []uint16{gpt, google, news}
		r.Verdicts = []audit.Verdict{
			verdict("*", -1, audit.ViaStar, audit.Blocked, false, audit.DPIAll),
			verdict("mybot2", -1, audit.ViaOwn, audit.Allowed, true, audit.DPINone),
		}
	})
	ctx := context.Background()
	if err := errors.Join(w.Complete(ctx), w.Close(ctx), index.Update(ctx, dir), views.Write(ctx, dir, nil)); err != nil {
		tb.Fatal(err)
	}
	return dir
}
