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

// TestUnits lets systemd check the units, and the rights of the service.
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
	if text, err := exec.Command(analyze, "verify", "--man=no", service, timer).CombinedOutput(); err != nil ||
		len(text) > 0 {
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

// The memory limit of a share under Slurm follows the memory that Slurm gives to the task. Without a value from Slurm
// it is not set.
func TestSlurmMemory(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "bulkscan"), []byte("#!/bin/sh\necho \"limit=$GOMEMLIMIT\"\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		"":                        "",
		"SLURM_MEM_PER_NODE=1000": "900MiB",
		"SLURM_MEM_PER_NODE=0":    "", // --mem=0: the whole node
		"SLURM_MEM_PER_CPU=500 SLURM_CPUS_PER_TASK=4": "1800MiB",
		"SLURM_MEM_PER_CPU=500 SLURM_CPUS_ON_NODE=2":  "900MiB",
		"SLURM_MEM_PER_NODE=1000 GOMEMLIMIT=1GiB":     "1GiB",
	} {
		c := exec.Command("bash", "../../deploy/slurm/scan.sbatch")
		c.Env = append(strings.Fields(given), "PATH="+bin+":"+os.Getenv("PATH"), "LIST=list", "OUT=out")
		if said, err := c.CombinedOutput(); err != nil || string(said) != "limit="+want+"\n" {
			t.Errorf("%s: %v, %s, want %s", given, err, said, want)
		}
	}
}
