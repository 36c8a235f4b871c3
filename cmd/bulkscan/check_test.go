package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/simweb"
)

// TestCheckWithoutStatus checks a host of each behaviour whose outcome has no status. Text and JSON have no score and
// no verdict, and the exit code is 1. A host that fails after its status has a score.
func TestCheckWithoutStatus(t *testing.T) {
	inBubble(t, 0, simweb.Config{Seed: 1, Addresses: 4}, checkWithoutStatus)
}

func checkWithoutStatus(t *testing.T, w *world) {
	t.Helper()
	leadTo(t, w.web)
	t.Setenv("BULKSCAN_CA_FILE", "")
	run := func(args ...string) (code int, stdout, stderr string) {
		p := w.start(t, args...)
		<-p.gone
		return p.code, p.stdout.String(), p.stderr.String()
	}
	of := func(site string, args ...string) (outcome string) {
		t.Helper()
		args = append([]string{"check", site, "--retries", "0"}, args...)
		code, stdout, stderr := run(append(args, "--json")...)
		var all map[string]any
		if err := json.Unmarshal([]byte(stdout), &all); err != nil {
			t.Fatalf("%s: %v\n%s%s", site, err, stdout, stderr)
		}
		outcome, _ = all["outcome"].(string)
		_, status := all["http_status"]
		absent := all["score"] == nil && all["status"] == nil && all["star"] == nil
		empty := true
		for _, list := range []string{"steps", "advice", "tokens", "verdicts"} {
			empty = empty && len(all[list].([]any)) == 0
		}
		if status != (all["known"] == true) || status == absent || status == empty || status != (code == 0) {
			t.Errorf("%s: exit code %d, %s, known %v, status %v, score %v, %v steps\n%s", site, code, outcome, all["known"],
				all["http_status"], all["score"], all["steps"], stderr)
		}
		code, page, stderr := run(append(args, "--all")...)
		if known := !strings.Contains(page, "? nothing:"); known != status || strings.Contains(page, "score 0") != status ||
			strings.Contains(page, "blocked:") && !status || known != (code == 0) {
			t.Errorf("%s: exit code %d, %s\n%s", site, code, outcome, page)
		}
		if says := strings.Contains(stderr, "nothing is known") ||
			strings.Contains(stderr, "was not asked"); says == status || !status && !strings.Contains(stderr, outcome) {
			t.Errorf("%s: standard error %q", site, stderr)
		}
		return outcome
	}
	// no status
	sites := []string{"nxdomain", "no-address", "servfail", "dns-refused", "refuse", "reset-head", "close-head", "ssh",
		"endless-head", "silent", "https://tls-alert", "https://tls-close", "redirect-private", "dns-silent", "black-hole",
		"error-500", "close-body", "reset-body", "redirect-loop", "gzip-corrupt"} // a status
	var seen []string
	for _, name := range sites {
		site := "http://" + name + ".zoo.test"
		if rest, ok := strings.CutPrefix(name, "https://"); ok {
			site = "https://" + rest + ".zoo.test"
		}
		seen = append(seen, of(site))
	}
	t.Setenv("BULKSCAN_ALLOW_PRIVATE", "false")
	seen = append(seen, of("http://ok.zoo.test"))
	for _, o := range exchange.Outcomes() {
		// Answered is known, OptedOut is not fetched, the others have no host here
		skip := []exchange.Outcome{exchange.Answered, exchange.OptedOut, exchange.NotArchived, exchange.Carried,
			exchange.ConnectFailed, exchange.RedirectInvalid}
		if !slices.Contains(skip, o) && !slices.Contains(seen, o.String()) {
			t.Error(fmt.Sprint("no site ends as ", o, ": ", seen))
		}
	}
}
