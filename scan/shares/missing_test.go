package shares

import (
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// TestSharesOfOtherVersions shows what a share may differ in from the manifest, and that collecting names each share
// that differs in more.
func TestSharesOfOtherVersions(t *testing.T) {
	check := commit.Check{ID: "robots.txt", Version: "1.0.0", Suite: "s", Reading: 2}
	f := func(want string, change func(s *commit.Share)) {
		t.Helper()
		m := &commit.Manifest{SchemaVersion: schema.Version, ScanID: "s", Shares: 5, ToolVersion: "1.2.3",
			RegistryVersion: "7", Check: check, Inputs: []commit.Input{{Name: "list", Fingerprint: "f"}}}
		records := map[int]*commit.Share{}
		for i := range m.Shares {
			records[i] = &commit.Share{
				SchemaVersion: schema.Version, ScanID: "s", I: i, N: 5, State: commit.ShareDone, ToolVersion: "1.2.3",
				RegistryVersion: "7", Check: check, Inputs: m.Inputs,
				Result: &commit.ShareResult{Sites: 2, Lines: 10},
			}
		}
		for _, i := range []int{1, 3, 4} {
			change(records[i])
		}
		err := Check(m, records)
		if want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(err.Error(), "of shares 1,3-4, share 1 "+want)) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	f("", func(*commit.Share) {})
	f("", func(s *commit.Share) { s.ToolVersion = "1.2.4" }) // a correction that changes no row
	f("is of schema version ", func(s *commit.Share) { s.SchemaVersion-- })
	f(`was judged by token registry "8", and the scan by "7"`, func(s *commit.Share) { s.RegistryVersion = "8" })
	f(`was judged by check "robots.txt 1.0.0+3 (s)", and the scan by "robots.txt 1.0.0+2 (s)"`,
		func(s *commit.Share) { s.Check.Reading++ })
	f(`was judged by check "robots.txt 1.1.0+2 (s)"`, func(s *commit.Share) { s.Check.Version = "1.1.0" })
	f(`was judged by check "other 1.0.0+2 (s)"`, func(s *commit.Share) { s.Check.ID = "other" })
	f(`was judged by check "robots.txt 1.0.0+2 (t)"`, func(s *commit.Share) { s.Check.Suite = "t" })
	f("has read other lists", func(s *commit.Share) { s.Inputs = nil })
}
