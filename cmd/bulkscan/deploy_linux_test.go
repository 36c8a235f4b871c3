package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestUnits lets systemd check the units, and how much the service may do.
func TestUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("SKIPPED: there is no systemd-analyze here")
	}
	dir := t.TempDir()
	for _, name := range []string{"bulkscan-nightly.service", "bulkscan-nightly.timer"} {
		text, err := os.ReadFile(filepath.Join("../../deploy/systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		installed := strings.ReplaceAll(string(text), "/usr/bin/bulkscan", "/bin/true") // it must be there
		if err := os.WriteFile(filepath.Join(dir, name), []byte(installed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	service, timer := filepath.Join(dir, "bulkscan-nightly.service"), filepath.Join(dir, "bulkscan-nightly.timer")
	if text, err := exec.Command(analyze, "verify", "--man=no", service, timer).CombinedOutput(); err != nil || len(text) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, text)
	}
	text, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", service).CombinedOutput()
	level := regexp.MustCompile(`exposure level for bulkscan-nightly.service: ([0-9.]+)`).FindSubmatch(text)
	if level == nil {
		t.Skipf("SKIPPED: this systemd-analyze does not judge files: %v", err)
	}
	if exposure, err := strconv.ParseFloat(string(level[1]), 64); err != nil || exposure > 2 {
		t.Errorf("the exposure is %s, at most 2.0 is wanted\n%s", level[1], text)
	}
}
