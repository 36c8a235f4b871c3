package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMisspeltTokens misspells a crawler in each option and argument that takes one. The error comes before anything is
// read and suggests the right name. Only `test` continues, since users have crawlers of their own.
func TestMisspeltTokens(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("robots.txt", []byte("User-agent: *\nAllow: /\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	names := filepath.Join("names.txt")
	for _, name := range []string{"gptbt", "gtpbot", "GPTBoot", "GPT-Bot", "GPTBo"} {
		if err := os.WriteFile(names, []byte("ClaudeBot\n"+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"tokens", name}, {"tokens", "ClaudeBot", name},
			{"history", "out", "a.example", "--token", name},
			{"summary", "out", "--sensitivity", name},
			{"summary", "out", "--tokens", name}, {"summary", "out", "--tokens", "ClaudeBot," + name},
			{"summary", "out", "--tokens", names},
			{"stats", "out", "--tokens", name},
			{"diff", "out", "2026-11-20", "2026-11-21", "--tokens", name},
			{"test", "--robots", "robots.txt", "--agent", name, "/"},
			{"test", "--robots", "robots.txt", "--agent", "ClaudeBot," + name, "--json", "/"},
			{"test", "--robots", "robots.txt", "--agent", name, "--literal", "/"},
		} {
			want := exitUsage
			if args[0] == "test" {
				want = 0
			}
			code, stdout, stderr := hostileRun(t, "", args...)
			if code != want || !strings.Contains(string(stderr), `"`+name+`": no token has this name`) ||
				!strings.Contains(string(stderr), "GPTBot") {
				t.Errorf("bulkscan %q: exit code %d, want %d\n%s%s", args, code, want, stdout, stderr)
			}
		}
	}
}
