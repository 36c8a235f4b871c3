package commit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/store"
)

// This file finds the scan of a dataset that a user means. Scans are in the order of their start; place is the
// dataset's name in errors.

// Choose returns the scan with this id and date; "" matches any. Among several scans it returns the Default, and
// without a default the first by comesBefore. An empty scan is returned only if id names it.
func Choose(ctx context.Context, st store.Store, place string, scans []*Manifest, id, date string) (*Manifest, error) {
	var known []string
	var meant []*Manifest
	for _, scan := range scans {
		known = append(known, about(scan))
		if (id == "" || id == scan.ScanID) && (date == "" || date == scan.ScanDate) {
			meant = append(meant, scan)
		}
	}
	chosen := Default(meant)
	if chosen == nil {
		for _, scan := range meant {
			if (id != "" || scan.Publication != PublicationEmpty) && (chosen == nil || comesBefore(scan, chosen)) {
				chosen = scan
			}
		}
	}
	if chosen != nil {
		return chosen, nil
	}
	if len(meant) > 0 {
		return nil, fmt.Errorf("no scan in %s has anything to tell; --scan-id names one of %s", printable.Short(place),
			lastOf(known))
	}
	if err := WasPruned(ctx, st, place, id, date); err != nil {
		return nil, err
	}
	wanted := id
	if date != "" {
		wanted = strings.TrimPrefix(id+" of "+date, " ")
	}
	return nil, fmt.Errorf("no scan %s in %s; there are %s", wanted, place, lastOf(known))
}

// ChooseTwo returns two scans to compare, each named by its id or date. A date as from means a scan by the observer of
// the later scan, if possible of the same list.
func ChooseTwo(ctx context.Context, st store.Store, place string, scans []*Manifest, from, to string) (earlier,
	later *Manifest, err error) {
	if err := WasPruned(ctx, st, place, from, to); err != nil {
		return nil, nil, err
	}
	if later, err = chooseNamed(scans, place, to, nil); err != nil {
		return nil, nil, err
	}
	earlier, err = chooseNamed(scans, place, from, later)
	return earlier, later, err
}

// chooseNamed returns the scan with this id, or the published scan of this date that started last. If later is not nil,
// a scan of the date must have the observer of later, and a scan of the same list is preferred.
func chooseNamed(scans []*Manifest, place, name string, later *Manifest) (*Manifest, error) {
	var of *Manifest
	var known []string
	for _, m := range scans {
		if m.ScanID == name {
			return m, nil
		}
		other := about(m)
		switch {
		case !m.Published():
		case later != nil && m.Observer != later.Observer:
			other += " (by another observer)"
		case m.ScanDate == name && (of == nil || later == nil || m.ListID == later.ListID || of.ListID != later.ListID):
			of = m
		}
		known = append(known, other)
	}
	if of != nil {
		return of, nil
	}
	kind := "scan " + printable.Short(name)
	if _, err := time.Parse(time.DateOnly, name); err == nil {
		kind = "complete scan of " + name
		if later != nil {
			kind += " by the same observer"
		}
	}
	return nil, fmt.Errorf("no %s in %s; there are %s", kind, printable.Short(place), lastOf(known))
}

// ChooseShared returns a scan in shares: the one named, else the last started one that is not collected, else the last
// started one.
func ChooseShared(place string, scans []*Manifest, id string) (*Manifest, error) {
	var chosen *Manifest
	for _, m := range scans {
		switch {
		case id != "" && m.ScanID != id, m.Shares == 0:
		case chosen == nil || !chosen.Uncollected() || m.Uncollected():
			chosen = m
		}
	}
	switch {
	case chosen != nil:
		return chosen, nil
	case id != "":
		return nil, fmt.Errorf("no scan %s in shares in %s; bulkscan scan --shard begins one", printable.Short(id),
			printable.Short(place))
	}
	return nil, fmt.Errorf("no scan in shares in %s; bulkscan scan --shard begins one", printable.Short(place))
}

// about names a scan, with its date, and says what keeps it from readers.
func about(m *Manifest) string {
	text := m.ScanID + " of " + m.ScanDate
	switch {
	case m.Withheld():
		text += " (" + m.Withholding() + ")"
	case m.State != Complete:
		text += " (not complete)"
	}
	return text
}

// lastOf lists the last ten of some names, and says how many come before.
func lastOf(names []string) string {
	const most = 10
	text := strings.Join(names[max(0, len(names)-most):], ", ")
	if more := len(names) - most; more > 0 {
		text = fmt.Sprintf("%d before, and %s", more, text)
	}
	return text
}

// comesBefore reports whether a scan is chosen before one that started earlier, if no scan is the default.
func comesBefore(later, earlier *Manifest) bool {
	if later.Withheld() != earlier.Withheld() {
		return earlier.Withheld()
	}
	return later.ScanDate >= earlier.ScanDate
}

// WasPruned says that a scan of one of these ids or dates was pruned; nil if none was.
func WasPruned(ctx context.Context, st store.Store, place string, names ...string) error {
	pruned, err := ReadPruned(ctx, st)
	if err != nil {
		return err
	}
	for _, name := range names {
		switch {
		case pruned.HasDiscarded(name):
			return fmt.Errorf("%s was pruned: %s", name, pruned.Left(name))
		case pruned.Has(name), pruned.HasDate(name):
			return fmt.Errorf(
				"%s was pruned: of the nights up to %s %s has the history only; `bulkscan history %[3]s HOST` tells it, and docs/history.md has queries", name, pruned.Through, printable.Short(place))
		}
	}
	return nil
}
