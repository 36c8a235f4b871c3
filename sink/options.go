package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// Options say which scan to write, and how.
type Options struct {
	ScanID string // see commit.CheckScanID
	Date   string // scan_date of a new scan, YYYY-MM-DD; "" is today in UTC; a resumed scan keeps its date
	Shard  string // letters and digits; "" is "0"
	// the scan is written in so many shares, and Shard is the number of one, from 0; 0: the scan is not in shares
	Shares int

	Tables   []string      // of schema.AllTables; nil is all; schema.Policies is always added
	PartRows int           // a part is full at this number of sites, or earlier if they are large; 0 is 50,000
	PartAge  time.Duration // or at this age, counted from its first site; 0 is 5 minutes

	ToolVersion string
	Registry    *tokens.Registry // with which the sites were judged; nil is tokens.Default()

	Observer commit.Observer
	ListID   string           // which published list the inputs are; "" if unknown
	Config   []commit.Setting // as given, for the manifest
	Inputs   []commit.Input   // for the manifest
	Restart  bool             // delete the scan's earlier data and begin again
	// take out damaged and lost parts, so that their sites are fetched again (see package repair)
	Repair  bool
	Sidecar Sidecar // may be nil

	// NoPublish keeps the complete scan out of the index, the views and the history, until it is completed without
	// NoPublish. A scan that is held or discarded stays so in either case.
	NoPublish bool

	// Unlisted leaves index and views as they are, for a caller that opens many scans: the opening of the last one updates
	// both.
	Unlisted bool

	Source *commit.RejudgedScan // the stored scan whose sites are judged again (see Remade); nil if sites are fetched

	Log *slog.Logger // of waiting for other processes; may be nil

	groupBytes int // 0 is the constant; tests set smaller ones
}

// Defaults of Options.
const (
	DefaultPartRows = 50_000
	DefaultPartAge  = 5 * time.Minute
)

// complete sets defaults and checks the options.
func (o *Options) complete(now time.Time) error {
	if o.Shard == "" {
		o.Shard = "0"
	}
	if o.Date == "" {
		o.Date = now.UTC().Format(time.DateOnly)
	}
	if o.Tables == nil {
		o.Tables = schema.AllTables
	}
	if o.Registry == nil {
		o.Registry = tokens.Default()
	}
	if o.PartRows == 0 {
		o.PartRows = DefaultPartRows
	}
	if o.PartAge == 0 {
		o.PartAge = DefaultPartAge
	}
	if err := errors.Join(commit.CheckScanID(o.ScanID), commit.CheckShard(o.Shard), commit.CheckDate(o.Date)); err != nil {
		return err
	}
	if len(o.Tables) == 0 {
		return errors.New("no table to write")
	}
	if !slices.Contains(o.Tables, schema.Policies) {
		o.Tables = append(slices.Clone(o.Tables), schema.Policies)
	}
	for i, t := range o.Tables {
		if !slices.Contains(schema.AllTables, t) || slices.Contains(o.Tables[:i], t) {
			return fmt.Errorf("cannot write table %.40q: the tables are %s, each once", t, strings.Join(schema.AllTables, ", "))
		}
	}
	if o.PartRows < 0 || o.PartAge < 0 {
		return fmt.Errorf("a part cannot have %d rows or an age of %v", o.PartRows, o.PartAge)
	}
	return nil
}

// Sidecar keeps data of a scan that is in no table, for example an archive, and publishes it with the parts: the data
// up to a cut is published before the part is committed.
type Sidecar interface {
	// Begin is called once, with the scan's lock held, before the first Add. It deletes data that was published with
	// parts that do not count.
	Begin(ctx context.Context, of SidecarScan) error
	// Cut ends the data of the given part, whose rows have all been added. The returned function publishes the data. Each
	// such function is called at most once, in the order of the parts.
	Cut(part int) (publish func(ctx context.Context) error)
}

// SidecarScan describes the scan to its Sidecar.
type SidecarScan struct {
	ID, Shard string
	StartedAt time.Time           // start of its first run; distinguishes it from restarted scans of that name
	Restarted bool                // delete the data of earlier scans of that name
	Next      int                 // number of the next part to cut; numbers are consecutive
	Counts    func(part int) bool // reports whether an earlier part counts
}

// remedy says what to do about damaged records and files of the scan.
func (o *Options) remedy() string {
	if o.Source != nil {
		return commit.ManifestRemedy // --repair fetches sites, which does not apply here
	}
	if o.Shares > 0 {
		return commit.ShareRemedy(o.ScanID, o.Shares, o.Shard)
	}
	return commit.DamageRemedy
}
