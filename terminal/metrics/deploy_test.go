package metrics

import (
	"encoding/json"
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/nightly"
)

const (
	alerts    = "../../deploy/prometheus/alerts.yml"
	dashboard = "../../deploy/grafana/bulkscan.json"
)

// TestDeployed shows that alerts and dashboard use only existing metrics and states.
func TestDeployed(t *testing.T) {
	for _, file := range []string{alerts, dashboard} {
		text := read(t, file)
		names := regexp.MustCompile(`\bbulkscan_[a-z_]+`).FindAllString(text, -1)
		if len(names) < 5 {
			t.Errorf("%s has %d names", file, len(names))
		}
		for _, name := range names {
			if !isMetric(name) {
				t.Errorf("%s asks for %s, which is no metric", file, name)
			}
		}
		for _, states := range regexp.MustCompile(`bulkscan_night_state\{state=~?"([a-z|]+)"`).FindAllStringSubmatch(text,
			-1) {
			for state := range strings.SplitSeq(states[1], "|") {
				if !slices.Contains(nightStates, nightly.State(state)) {
					t.Errorf("%s: %s is no state of a night", file, state)
				}
			}
		}
	}
	if !json.Valid([]byte(read(t, dashboard))) {
		t.Errorf("%s is no JSON", dashboard)
	}
}

// TestPromtool checks the alerts by Prometheus' own tool.
func TestPromtool(t *testing.T) {
	text, err := exec.Command("promtool", "check", "rules", alerts).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("SKIPPED: there is no promtool here")
	}
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}
