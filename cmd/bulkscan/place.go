package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/s3"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/terminal"
)

// Where a dataset lies (a folder, or s3://BUCKET/PREFIX), and which of its scans a command is for.

// checkPlace refuses a text that names no place for a dataset, with an error of usage. It makes no network requests.
func checkPlace(place string) error {
	_, err := openPlace(place)
	return err
}

// openPlace returns the store that a dataset is written to. It makes no network requests: only the first call shows
// whether the place exists and may be written to.
func openPlace(place string) (store.Store, error) {
	switch scheme, _, ok := strings.Cut(place, "://"); {
	case place == "":
		return nil, usagef("no place for the dataset: name a folder, or s3://BUCKET/PREFIX")
	case !ok && strings.HasPrefix(strings.ToLower(place), "s3:"):
		return nil, usagef("%s: write s3://BUCKET/PREFIX; a folder of that name is ./%[1]s", clipped(place))
	case !ok:
		dir, err := store.NewDir(place)
		if err != nil {
			return nil, err // not into the interface: a nil *Dir would be no nil Store
		}
		return dir, nil
	case scheme != "s3":
		// The text after the scheme may contain a user's password.
		return nil, usagef("%s://: datasets are kept in a folder or at s3://BUCKET/PREFIX", clipped(scheme))
	}
	cfg, err := s3.FromEnvironment(place)
	if err != nil {
		return nil, usage(err)
	}
	remote, err := s3.New(cfg)
	if err != nil {
		return nil, usage(err)
	}
	return remote, nil
}

// openDataset returns the store of an existing dataset, for reading.
func openDataset(place string) (store.Store, error) {
	st, err := openPlace(place)
	if err == nil && !strings.Contains(place, "://") {
		info, err := os.Stat(place)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil, noScan(place)
		case err != nil:
			return nil, fmt.Errorf("cannot read the dataset: %w", err)
		case !info.IsDir():
			return nil, usagef("%s is no folder; name the folder that a scan wrote, or s3://BUCKET/PREFIX", place)
		}
	}
	return st, err
}

// scanChoice chooses a scan of a dataset, as commit.Choose does.
type scanChoice struct {
	id, date string
	skip     *survey.Skip // nil if the command has no --skip-damaged
}

func (c *scanChoice) add(flags *pflag.FlagSet) {
	c.skip = &survey.Skip{}
	flags.BoolVar(&c.skip.On, "skip-damaged", false,
		"leave out the parts and scans that are damaged, and say in the first line which; all files of the scan are read first")
	flags.StringVar(&c.id, "scan-id", "",
		"the scan (default: of the published ones that of the newest date; of several the one that started last)")
	flags.StringVar(&c.date, "date", "", "the scan of this date, YYYY-MM-DD; of several the one that started last")
}

// check refuses an invalid date, with an error of usage.
func (c *scanChoice) check() error {
	if _, err := time.Parse(time.DateOnly, c.date); c.date != "" && err != nil {
		return usagef("--date %q: a date is YYYY-MM-DD", clipped(c.date))
	}
	return nil
}

// found is the chosen scan, and the other scans of the dataset, the latest start last.
type found struct {
	chosen *commit.Manifest
	others []*commit.Manifest
}

// openScan finds a scan of a dataset.
func (a *app) openScan(ctx context.Context, dir string, choice scanChoice) (store.Store, *found, error) {
	st, scans, err := a.readableScans(ctx, dir, choice, commit.Scans)
	if err != nil {
		return nil, nil, err
	}
	if len(scans) == 0 {
		return nil, nil, noScan(dir)
	}
	chosen, err := commit.Choose(ctx, st, dir, scans, choice.id, choice.date)
	if err != nil {
		return nil, nil, err
	}
	return st, &found{chosen: chosen, others: slices.DeleteFunc(scans,
		func(m *commit.Manifest) bool { return m == chosen })}, nil
}

// skipped names --skip-damaged in an error of damage. Without an error it reports on standard error what was left out.
func (a *app) skipped(k *survey.Skip, err error) error {
	line := terminal.LeftOut(k.Omissions())
	switch {
	case err == nil && line != "":
		fmt.Fprintf(a.stderr, "bulkscan: %s\n", line)
	case survey.IsDamage(err) && !k.On:
		return fmt.Errorf("%w; or leave it out by --skip-damaged", err)
	}
	return err
}

// placeOf is where the dataset is: as given, or where a scan writes by default.
func placeOf(args []string) string {
	if len(args) == 0 {
		return defaultOut
	}
	return args[0]
}

// noScan is the error of a dataset without a scan.
func noScan(dir string) error {
	return fmt.Errorf("no scan in %s; `bulkscan scan LIST -o %s` makes one", clipped(dir), clipped(dir))
}

// noSuchScan is the error of a scan that a dataset does not have.
func noSuchScan(scanID, dir string) error {
	return fmt.Errorf("no scan %s in %s", clipped(scanID), clipped(dir))
}

// scansOf opens a dataset and returns the scans that a command is for: the one named, or all. Scans with a damaged
// manifest are named on standard error, and left out.
func (a *app) scansOf(ctx context.Context, dir, scanID string,
	read func(context.Context, store.Store) ([]*commit.Manifest, error)) (store.Store, []string, error) {
	st, scans, err := a.readableScans(ctx, dir, scanChoice{id: scanID}, read)
	if err != nil {
		return nil, nil, err
	}
	var ids []string
	for _, scan := range scans {
		ids = append(ids, scan.ScanID)
	}
	switch {
	case scanID != "" && slices.Contains(ids, scanID):
		return st, []string{scanID}, nil
	case scanID != "":
		return nil, nil, cmp.Or(commit.WasPruned(ctx, st, dir, scanID), noSuchScan(scanID, dir))
	case len(ids) == 0:
		return nil, nil, noScan(dir)
	}
	return st, ids, nil
}

// readableScans opens a dataset, and reads its manifests with commit.Scans or commit.StoredScans. A damaged manifest is
// an error if the choice names its scan, if another version of bulkscan wrote it, or if no other manifest can be read.
// It is also an error if the command has --skip-damaged, the flag is not set and no scan is named: the damaged manifest
// may be the default scan's. Otherwise it is named on standard error, and the other manifests are returned.
func (a *app) readableScans(ctx context.Context, dir string, choice scanChoice,
	read func(context.Context, store.Store) ([]*commit.Manifest, error)) (store.Store, []*commit.Manifest, error) {
	st, err := openDataset(dir)
	if err != nil {
		return nil, nil, err
	}
	scans, err := read(ctx, st)
	damaged, ok := errors.AsType[*commit.DamagedScansError](err)
	if !ok {
		return st, scans, err
	}
	for _, s := range damaged.Scans {
		other := schema.OfOtherVersion(s.Err)
		switch {
		case s.ScanID == choice.id && choice.skip != nil && !other:
			return nil, nil, commit.Remedied(s.Err, commit.ManifestRemedy)
		case s.ScanID == choice.id, other:
			return nil, nil, s.Err
		case choice.skip != nil && choice.id == "" && !choice.skip.Without("scan "+s.ScanID, s.ScanID, s.Err):
			return nil, nil, a.skipped(choice.skip, commit.Remedied(s.Err, commit.ManifestRemedy))
		}
	}
	if len(scans) == 0 {
		return nil, nil, err
	}
	for _, s := range damaged.Scans {
		fmt.Fprintf(a.stderr, "bulkscan: left out: %s; see bulkscan verify\n", terminal.Line(s.Err.Error()))
	}
	return st, scans, nil
}
