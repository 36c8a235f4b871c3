// Package survey answers one question: how are the sites of scans counted? With which options (options.go), from
// which rows (rows.go), without damaged files (skip.go), by policy (policies.go), by six definitions of blocking
// (definition.go), by value (counts.go, histogram.go), and how sure a share is (uncertainty.go). The rooms beside it
// say what comes of that: package stats computes the statistics of a scan, summary its headline figures, tables those
// of the report page, which page writes, method says how a dataset was made, and diff compares two scans.
package survey

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/store"
)

// Options say which rows of a scan count, and how. All results have them.
type Options struct {
	Registry    *tokens.Registry // nil is tokens.Default()
	Only        []string         // the tokens that count; nil is all
	ToolVersion string
	Alone       bool // read the scan by itself, and not the scans of its date, observer and list

	// Skip lets summaries, sensitivity and tables leave out damaged files, and lists these afterwards.
	Skip *Skip

	Uncertainty // without LeastGroup the constant counts, and without SampleOf the scan's --sample

	// Log receives warnings that a reader of the result needs: the registry is not the scan's, or segments are
	// missing. nil discards them.
	Log *slog.Logger
}

// WithDefaults returns the options with a registry, a log and a least group.
func (o Options) WithDefaults() Options {
	if o.Registry == nil {
		o.Registry = tokens.Default()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.LeastGroup = cmp.Or(o.LeastGroup, LeastGroup)
	return o
}

// Open opens the rows that figures count, of a scan that is complete or not: those of the scan's unit, or of the scan
// alone if o says so or if readers do not get the scan.
func (o *Options) Open(ctx context.Context, st store.Store, scanID string) (*commit.Scan, error) {
	m, err := commit.ReadManifest(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	return index.ReadUnit(ctx, st, scanID, o.Alone || !m.Published(), func(ctx context.Context, st store.Store,
		id string) (*commit.Scan, error) {
		s, err := o.Skip.ReadScan(ctx, st, id)
		if id != scanID && IsDamage(err) && o.Skip.Without("scan "+id, id, err) {
			err = store.ErrNotExist
		}
		return s, err
	})
}

// Foreign reports whether the registry differs from that of the scan, or of a part of a scan that was judged again. It
// logs a warning with the effect.
func (o *Options) Foreign(scan *commit.Scan, effect string) bool {
	m := scan.Manifest
	for _, other := range scan.Read() {
		if other.RegistryVersion != o.Registry.Version {
			m = other
		}
	}
	if m.RegistryVersion == o.Registry.Version {
		sites := scan.ByOtherRegistry()
		if sites > 0 {
			o.Log.Warn("sites keep the judgement of another token registry, as their bodies were not stored", "sites", sites,
				"registry", o.Registry.Version,
				"effect",
				"tokens that it did not have count there as not named and not blocked; those of which no other site says anything have no row", "remedy", "scan again")
		}
		return sites > 0
	}
	o.Log.Warn("the scan was judged by another token registry", "scan_registry", m.RegistryVersion, "registry",
		o.Registry.Version,
		"effect", effect, "remedy", "give --tokens FILE as the scan had it, or scan again")
	return true
}

// Selection chooses the tokens of a summary. Empty fields do not restrict; case is ignored.
type Selection struct {
	Category string   `json:"category" about:"--category; empty: all"`
	Operator string   `json:"operator" about:"--operator; empty: all"`
	Purpose  string   `json:"purpose" about:"--purpose; empty: all"`
	Tokens   []string `json:"tokens" about:"--tokens, as the registry spells them; empty: all"`
}

// Takes reports whether a token is selected.
func (s Selection) Takes(t *tokens.Token) bool {
	takes := func(want, value string) bool { return want == "" || strings.EqualFold(want, value) }
	return (len(s.Tokens) == 0 || slices.Contains(s.Tokens, t.Name)) && takes(s.Category, t.Category) &&
		takes(s.Operator, t.Operator) && takes(s.Purpose, t.Purpose)
}
