package terminal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/hostiletest"
)

// aStory has every kind of episode and change. With a token, it is the story of that token.
func aStory(token string) *history.Story {
	date := func(day string) history.Date {
		d, err := history.ParseDate("2026-11-" + day)
		if err != nil {
			panic(err)
		}
		return d
	}
	episode := func(from, after, to string, cause history.Cause) history.Told {
		e := history.Told{Episode: history.Episode{Host: "news.example", ValidFrom: date(from), ValidTo: date(to),
			Cause: cause, Judge: "2026.11.01 1.0.0"}}
		if after != "" {
			e.PreviousLast = date(after)
		}
		e.What = history.Policy{Class: history.ClassRules, StarVerdict: "partial", OwnBlocked: []string{"CCBot", "GPTBot"}}
		return e
	}
	s := &history.Story{Host: "news.example", Port: 443, Requested: "auto", Token: token, Episodes: []history.Told{
		episode("01", "", "02", history.First), episode("04", "02", "05", history.ByPolicy),
		episode("06", "05", "06", history.ByManaged),
		episode("07", "06", "07", history.ByObserver), episode("08", "07", "08", history.UnknownJudge),
		episode("09", "08", "09", history.ByPolicy),
		episode("10", "09", "10", history.ByPolicy), episode("11", "10", "30", history.ByRefusal),
	}, Gaps: []history.Gap{{Class: "unreachable", First: date("03"), Last: date("03"), Nights: 1}}}
	e := s.Episodes
	e[1].What.OwnPartial = []string{"Amazonbot", "Applebot-Extended", "Bytespider", "ClaudeBot", "Google-Extended",
		"PerplexityBot"}
	e[2].What.ContentSignal, e[2].What.ContentUsage, e[2].What.License, e[2].What.Managed = "ai-train=no", "train-ai=n",
		"https://news.example/license.xml", "cloudflare"
	e[7].What = history.Policy{Class: history.ClassRefused}
	if token == "" {
		for i, c := range []history.Change{
			{BodyBefore: 1, BodyAfter: 2, HasBefore: true, HasAfter: true, Diff: []string{"@@ -1,2 +1,3 @@",
				" User-agent: CCBot", "+User-agent: GPTBot", "-Disallow:\t/" + strings.Repeat("long", 40)}, More: 1234},
			{BodyBefore: 2, HasBefore: true}, {BodyBefore: 2, BodyAfter: 2, HasBefore: true, HasAfter: true},
			{BodyBefore: 2, BodyAfter: 3, HasAfter: true},
			{BodyBefore: 2, BodyAfter: 3}, {BodyBefore: 4, BodyAfter: 5, HasBefore: true, HasAfter: true},
		} {
			e[1+i].Change = &c
		}
		return s
	}
	for i, t := range []history.Treated{
		{Verdict: "allowed", Via: "none", Changed: true, Stored: true},
		{Verdict: "blocked", Via: "own", Changed: true, Stored: true, Line: 4, Group: "User-agent:\tGPTBot", RuleLine: 5,
			Rule: "Disallow: / # all"},
		{Verdict: "blocked", Via: "own", Stored: true, Line: 5, Group: "User-agent: GPTBot", RuleLine: 6,
			Rule: "Disallow: / # all"},
		{Verdict: "partial", Via: "fallback", Follows: "Googlebot", Changed: true, Stored: true, Line: 1,
			Group: "User-agent: Googlebot"},
		{Verdict: "partial", Via: "star", Follows: "*", Changed: true, Stored: true, Line: 1, Group: "User-agent: *",
			RuleLine: 2, Rule: "Allow: /$"},
		{Verdict: "allowed", Changed: true}, {Verdict: "allowed"}, {Changed: true},
	} {
		e[i].Token = &t
	}
	return s
}

func storyPage(t *testing.T, s *history.Story) string {
	t.Helper()
	var out bytes.Buffer
	if err := Stories(&out, []history.Story{*s}, ColorNever); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestStoryPage compares pages with files.
func TestStoryPage(t *testing.T) {
	goldenPage(t, "story", storyPage(t, aStory("")))
	goldenPage(t, "story-token", storyPage(t, aStory("GPTBot")))
}

// TestStoryPageHostile has texts that our ledgers never contain, and lines of files, which may be any text.
func TestStoryPageHostile(t *testing.T) {
	for _, h := range hostiletest.Texts() {
		s, told := aStory(""), aStory(h.Text)
		s.Host, s.Requested, s.Gaps[0].Class, s.Episodes[7].What.Class = h.Text, h.Text, h.Text, h.Text
		s.Episodes[0].What.StarVerdict, s.Episodes[1].What.OwnPartial[0], s.Episodes[2].What.License,
			s.Episodes[3].Cause = h.Text, h.Text, h.Text, history.Cause(h.Text)
		s.Episodes[1].Change.Diff = []string{h.Text, "+" + h.Text, "-" + h.Text, " " + h.Text}
		token := told.Episodes[1].Token
		token.Verdict, token.Group, token.Rule, told.Episodes[3].Token.Follows, told.Episodes[5].Judge = h.Text, h.Text,
			h.Text, h.Text, h.Text
		for _, page := range []string{storyPage(t, s), storyPage(t, told)} {
			harmless(t, h.Name, page, 400)
		}
		if t.Failed() {
			return
		}
	}
}
