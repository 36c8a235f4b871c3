package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// said runs a command line that makes no network requests, and returns what it printed.
func said(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if got := run(args, strings.NewReader(""), &out, &errs); got != code {
		t.Errorf("%q: exit code %d, want %d\n%s", args, got, code, &errs)
	}
	return out.String(), errs.String()
}

var sourceComments = regexp.MustCompile(`(?m) # .*$`)

// The output of --print-config is a file that gives the same settings again, whatever they are.
func TestPrintConfigRoundTrip(t *testing.T) {
	t.Chdir(t.TempDir())
	f := func(want string, args ...string) {
		t.Helper()
		first, _ := said(t, 0, append([]string{"scan", "--print-config"}, args...)...)
		if err := os.WriteFile("printed.toml", []byte(first), 0o644); err != nil {
			t.Fatal(err)
		}
		again, _ := said(t, 0, "scan", "--config", "printed.toml", "--print-config")
		if first, again = sourceComments.ReplaceAllString(first, ""), sourceComments.ReplaceAllString(again,
			""); again != first {
			t.Errorf("%q: printed\n%s\nand read again\n%s", args, first, again)
		}
		if !strings.Contains("\n"+first, "\n"+want+"\n") {
			t.Errorf("%q: no line %s in\n%s", args, want, first)
		}
	}
	f("concurrency = 1000")
	f("rate = 1e+21", "--rate", "1e21")
	f("sample = 0.125", "--sample", "0.125")
	f("limit = 9223372036854775807", "--limit", "9223372036854775807")
	f("retry-after = '0s'", "--retry-after", "0s")
	f("part-age = '1h30m0s'", "--part-age", "90m")
	f("no-compact = true", "--no-compact")
	f("tables = ['sites', 'bodies']", "--tables", "sites,bodies")
	f("connect-to = ['a:1:192.0.2.1:2', '::[::1]:80']", "--connect-to", "a:1:192.0.2.1:2", "--connect-to", "::[::1]:80")
	f(`column = "it's \"me\"\\\n"`, "--column", "it's \"me\"\\\n")
	f(`out = "a'b,c"`, "-o", "a'b,c")
}

// The command line takes precedence over the environment, the environment over the file, and the file over the default.
func TestPrecedence(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("s.toml",
		[]byte("rate = 1\nip-rate = 1\n[scan]\nhost-rate = 3\nresolver = ['a:53']\n[nightly]\nwhatever = 1\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BULKSCAN_CONFIG", "s.toml")
	t.Setenv("BULKSCAN_IP_RATE", "2")
	t.Setenv("BULKSCAN_RATE", "2")
	t.Setenv("BULKSCAN_RESOLVER", "192.0.2.2:53,192.0.2.3:53")
	got, _ := said(t, 0, "scan", "--rate", "5", "--print-config")
	for _, want := range []string{"rate = 5 # the command line", "ip-rate = 2 # BULKSCAN_IP_RATE",
		"host-rate = 3 # s.toml:4", "dns-rate = 1000", "resolver = ['192.0.2.2:53', '192.0.2.3:53'] # BULKSCAN_RESOLVER"} {
		if !strings.Contains("\n"+got, "\n"+want+"\n") {
			t.Errorf("no line %s in\n%s", want, got)
		}
	}
}

// The error of a mistake in a file names the line, and says what to write.
func TestConfigMistakes(t *testing.T) {
	t.Chdir(t.TempDir())
	f := func(text string, want ...string) {
		t.Helper()
		if err := os.WriteFile("s.toml", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, got := said(t, exitUsage, "scan", "--config", "s.toml", "--print-config")
		for _, want := range want {
			if !strings.Contains(got, "s.toml:"+want+"\n") {
				t.Errorf("%q: no line s.toml:%s in\n%s", text, want, got)
			}
		}
	}
	f("\n# x\nconcurency = 5\ntimeot = 1", "3: there is no setting concurency; did you mean concurrency?",
		"4: there is no setting timeot; did you mean timeout?")
	f("colour = 1", "1: there is no setting colour; bulkscan scan --help lists them, without --")
	f("out = 'a'\r\n[scan]\r\nlimt = 1", "3: there is no setting limt; did you mean limit?")
	f("scan.limt = 1", "1: there is no setting limt; did you mean limit?")
	f("x = { y = 1 }", "1: there is no table [x]; there are [scan] and [nightly]")
	f("[scna]\nrate = 1", "1: there is no table [scna]; did you mean [scan]?")
	f("[[nightly]]\nrate = 1", "1: nightly is a table: write [nightly], and its keys in the lines below")
	f("rate = 1\n[scan]\nrate = 2",
		"3: rate is in line 1, too; keys above all tables are those of [scan]: leave one of them out")
	f("restart = true", "1: restart is for the command line only")
	f("timeout = 5", `1: timeout: want a duration with its unit in quotes; try timeout = "5s"`)
	f("timeout = '5'", `1: --timeout "5": a duration needs a unit; try 5s`)
	f("rate = '3'", "1: rate: want a number; try rate = 3, without quotes")
	f("limit = -1", `1: --limit "-1": a whole number from 0 on`)
	f("part-rows = 1.5", "1: part-rows: want a number, as in part-rows = 50000")
	f("ipv4 = 'yes'", "1: ipv4: want true or false, without quotes")
	f("tls-min = 1.0", `1: tls-min: want a text in quotes; try tls-min = "1.0"`)
	f("date = 2026-11-21", `1: date: want a text in quotes; try date = "2026-11-21"`)
	f("connect-to = [1]", `1: connect-to: want texts in quotes between brackets, as in connect-to = ["a", "b"]`)
	// Mistakes that are found only later also name the line.
	f("ipv4 = true\nconcurrency = 0", "2: --concurrency 0: at least 1")
	f("out = 'gs://x'", "1: -o: gs://: datasets are kept in a folder or at s3://BUCKET/PREFIX")
	f("rate = 1\nrate = 2", "2: no TOML: key rate is already defined")
	f("rate =", "1: no TOML: expected value, not end of input")
	f("\x00", "1: no TOML: invalid character at start of key: U+0000")
	f("out = '\xff'", "1: no TOML: invalid UTF-8 character in literal string")
}

// Flags that make nightly do something other than a night cannot come from a file or a variable: each night would do
// it.
func TestConfigWithoutActions(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, setting := range []string{"status = true", "json = true", "release = '2026-11-01'", "discard = '2026-11-01'",
		"withdraw = '2026-11-01'", "reason = 'x'", "prune = true"} {
		if err := os.WriteFile("s.toml", []byte("[nightly]\n"+setting+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, got := said(t, exitUsage, "nightly", "-o", "out", "--list", "list.txt", "--config", "s.toml")
		name, _, _ := strings.Cut(setting, " ")
		if !strings.Contains(got, "s.toml:2: "+name+" is for the command line only") {
			t.Errorf("%s: %s", setting, got)
		}
	}
	for _, name := range rules.Actions {
		variable, command := "BULKSCAN_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")), "nightly --list list.txt"
		if name == "restart" || name == "repair" || name == "print-config" {
			command = "scan list.txt"
		}
		t.Setenv(variable, "true")
		_, got := said(t, exitUsage, strings.Fields(command)...)
		if want := variable + ": --" + name + " is for the command line only"; !strings.Contains(got, want) {
			t.Errorf("not %q: %s", want, got)
		}
		t.Setenv(variable, "")
	}
}

// docs/configuration.md has the exit codes of the program's help, and its example is a valid file.
func TestConfigurationPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	plain := regexp.MustCompile(`\[[^]]*\]\(([^)]*)\)`).ReplaceAllString(string(page), "docs/$1")
	for _, fact := range exitCodes {
		if row := fmt.Sprintf("| `%s` | %s |", fact.Name, fact.Text); !strings.Contains(plain, row) {
			t.Errorf("it has no row\n%s", row)
		}
	}
	_, rest, _ := strings.Cut(string(page), "```toml\n")
	example, _, _ := strings.Cut(rest, "```")
	file := filepath.Join(t.TempDir(), "bulkscan.toml")
	if err := os.WriteFile(file, []byte(example), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, _ := said(t, 0, "scan", "--config", file, "--print-config"); !strings.Contains(got, "timeout = '20s' # "+file+
		":4") {
		t.Errorf("its file gives\n%s", got)
	}
	for _, name := range slices.Concat(rules.CommandLine[1:], rules.Actions) {
		if !strings.Contains(string(page), "`--"+name+"`") {
			t.Errorf("it does not say that --%s is for the command line only", name)
		}
	}
}

// TestNightChoices gives a night's scan an unknown value for each flag with a fixed set of values.
func TestNightChoices(t *testing.T) {
	t.Chdir(t.TempDir())
	f, of := &scanFlags{}, pflag.NewFlagSet("scan", pflag.ContinueOnError)
	f.add(of)
	f.fetchFlags.add(of)
	checked := 0
	for flag, known := range rules.Choices {
		if of.Lookup(flag) == nil {
			continue
		}
		if err := os.WriteFile("night.toml", []byte("[nightly]\nlist = 'list.csv'\n[scan]\n"+flag+" = 'nonsense'\n"),
			0o644); err != nil {
			t.Fatal(err)
		}
		_, stderr := said(t, exitUsage, "nightly", "--config", "night.toml")
		if want := fmt.Sprintf(`night.toml:4: --%s "nonsense": one of %s`, flag,
			strings.Join(known, ", ")); !strings.Contains(stderr, want) {
			t.Errorf("%s: %q; want %q", flag, stderr, want)
		}
		checked++
	}
	if checked < 8 {
		t.Errorf("%d flags were checked", checked)
	}
}
