package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/simweb/demo"
)

// TestHeldAgainst compares a dataset with truths that differ from it: a host that answers may time out on a busy
// machine, and nothing else is excused.
func TestHeldAgainst(t *testing.T) {
	out := filepath.Join(t.TempDir(), "demo")
	said(t, 0, "demo", "--origins", "300", "-o", out)
	truth := demo.Folder(out).Truth()
	lines, err := os.ReadFile(truth)
	if err != nil {
		t.Fatal(err)
	}
	status, silent, answering := 200, 0, 0
	f := func(want string, change func(t *simweb.Truth)) {
		t.Helper()
		var changed bytes.Buffer
		for line := range bytes.Lines(lines) {
			var row simweb.Truth
			if err := json.Unmarshal(line, &row); err != nil {
				t.Fatal(err)
			}
			change(&row)
			if err := json.NewEncoder(&changed).Encode(row); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(truth, changed.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		if got, err := demo.Folder(out).Compare(t.Context()); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	f("every row is what its host did", func(row *simweb.Truth) {
		switch {
		case strings.HasSuffix(row.Outcome, "timeout"):
			silent = row.Seq
		case row.Outcome == "answered":
			answering = row.Seq
		}
	})
	late := func(row *simweb.Truth) {
		if row.Seq == silent {
			row.Outcome, row.Outcomes, row.Status = "answered", []string{"answered"}, &status
		}
	}
	f("every row is what its host did, but for 1 that answered too late on this busy machine", late)
	f(
		"not every row is what its host did: 300 rows of 300 origins: 0 twice, 0 missing, 0 unknown, 2 differ from the truth. The first: ", func(row *simweb.Truth) {
			late(row)
			if row.Seq == answering {
				row.BodyHash++
			}
		})
	f("not every row is what its host did", func(row *simweb.Truth) {
		if row.Seq == silent {
			row.Outcome, row.Outcomes = "dns_not_found", []string{"dns_not_found"}
		}
	})
	f("not every row is what its host did: 300 rows of 300 origins: 0 twice, 1 missing, 1 unknown",
		func(row *simweb.Truth) {
			if row.Seq == answering {
				row.Host = "other.example"
			}
		})
}

// TestDemoServes keeps the web of a demo up: the commands that it prints work as printed, with the web's certificates,
// with hosts that fail at first, and with silent hosts. It ends with the first signal, and says so.
func TestDemoServes(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	p := &process{cmd: exec.Command("bulkscan", "demo", "--serve", "--origins", "60", "-o", "demo")}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = folder, &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // an error means that it has ended
	p.await(t, "served web", func() bool { return strings.Contains(p.stdout.String(), "--limit 1000 -o offline") })
	shown := p.stdout.String()
	flags := regexp.MustCompile(`(?m)^ +(--allow-private .*)$`).FindStringSubmatch(shown)
	printed := regexp.MustCompile(`(?m)^ +(bulkscan (?:check|scan) .*)$`).FindAllString(shown, -1)
	if flags == nil || len(printed) != 2 || !strings.Contains(shown, "up until Ctrl-C") {
		t.Fatalf("no flags, or not two commands, in\n%s", shown)
	}
	sh := func(want, command string) {
		t.Helper()
		run := exec.Command("sh", "-c", command)
		run.Dir = folder
		if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, nothing of %q in\n%.2000s", command, err, want, out)
		}
	}
	sh("answered, status 200", printed[0])
	sh("kept=60", printed[1])
	sh(`"tls_verified":true`, "bulkscan scan demo/list.csv --limit 1 -o - "+flags[1])
	sh("answered, status 200", "bulkscan check flaky-503.zoo.test --retries 1 --retry-after 0s "+flags[1])
	sh("✓ allowed ", "bulkscan test --robots ok.zoo.test --agent nobody / "+flags[1])
	p.signal(t, os.Interrupt)
	p.exits(t, 0)
	if !strings.HasSuffix(p.stdout.String(), "\nThe simulated web is down.\n") {
		t.Errorf("it ends with %q", p.stdout.String()[len(shown):])
	}
}
