package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/simweb"
)

// output runs the command and returns what it writes to standard output.
func output(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if err := run(ctx, args, &out, &errs); err != nil {
		t.Fatalf("simweb %v: %v\n%s", args, err, errs.String())
	}
	return out.String()
}

func TestNamesAndTable(t *testing.T) {
	names := strings.Split(strings.TrimSpace(output(t.Context(), t, "--names", "20")), "\n")
	if len(names) != 20 || !strings.HasPrefix(names[19], "20,") {
		t.Errorf("names: %q", names)
	}
	if table := output(t.Context(), t, "--behaviours"); !strings.Contains(table,
		"- `reset-head` (0.1 %): reset after the request → reset\n") {
		t.Errorf("table: %.200q", table)
	}
}

func TestTruth(t *testing.T) {
	dir := t.TempDir()
	list, ca := filepath.Join(dir, "list"), filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(list, []byte("example.com\r\n\n2,gone.zoo.test\nno host\nhttp://redirect-6.zoo.test"),
		0o600); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(output(t.Context(), t, "--addresses", "4", "--ca", ca, "--list", list,
		"--truth", "-")), "\n")
	var got []simweb.Truth
	for _, line := range lines {
		var row simweb.Truth
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got = append(got, row)
	}
	if len(got) != 3 || got[0].Seq != 0 || got[1].Seq != 2 || got[2].Seq != 4 || *got[1].Status != 410 ||
		got[2].Outcome != "redirect_limit" {
		t.Errorf("truth: %s", strings.Join(lines, "\n"))
	}
	if pem, err := os.ReadFile(ca); err != nil || !bytes.HasPrefix(pem, []byte("-----BEGIN CERTIFICATE-----")) {
		t.Errorf("certificate: %q %v", pem, err)
	}
}

func TestAnnounce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the announcement comes before the wait
	if got := output(ctx, t, "--addresses", "4"); !strings.Contains(got,
		"bulkscan scan LIST --allow-private --resolver=127.0.0.1:") || !strings.Contains(got, " --connect-to=:443::") {
		t.Errorf("said %q", got)
	}
	var where struct {
		Resolver string
		HTTPPort int `json:"http_port"`
	}
	if err := json.Unmarshal([]byte(output(ctx, t, "--addresses", "4", "--json")), &where); err != nil ||
		where.HTTPPort == 0 || where.Resolver == "" {
		t.Errorf("said %+v: %v", where, err)
	}
}

// TestRecordAccepts makes connections, interrupts the web, and reads its record.
func TestRecordAccepts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	path := filepath.Join(t.TempDir(), "accepts.json")
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"--addresses", "4", "--json", "--record-accepts", path}, out, io.Discard)
	}()
	var where struct {
		HTTPPort   int    `json:"http_port"`
		HotAddress string `json:"hot_address"`
	}
	if err := json.NewDecoder(said).Decode(&where); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, err := net.Dial("tcp", net.JoinHostPort(where.HotAddress, strconv.Itoa(where.HTTPPort)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET /robots.txt HTTP/1.1\r\nHost: a.hot.test\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got simweb.Record
	if err := json.Unmarshal(written, &got); err != nil {
		t.Fatal(err)
	}
	if got.Connections != 3 || got.Missed != 0 || got.Hot == nil || got.Hot.Name != where.HotAddress ||
		got.Hot.Total != 3 ||
		got.Address != nil || got.Host == nil || got.Host.Name != "a.hot.test" || got.Host.Total != 3 {
		t.Errorf("recorded %s", written)
	}
}

func TestUsage(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("simweb %v: %v, want %q", args, err, want)
		}
	}
	f("belong together", "--truth", "-")
	f("cannot understand", "example.com")
	f("cannot begin with scheme", "--scheme", "gopher")
	f("no behaviour", "--only", "ok,nonsense")
	f("needs a web that runs", "--record-accepts", "a", "--list", "l", "--truth", "-")
	f("needs a web that runs", "--record-accepts", "a", "--names", "3")
	f("cannot record the accepts", "--addresses", "4", "--record-accepts", filepath.Join(t.TempDir(), "none", "a"))
	f("cannot read the list", "--addresses", "4", "--list", "none", "--truth", "-")
}
