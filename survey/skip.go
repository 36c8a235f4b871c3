package survey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
)

// Omission is a part that a result Lacks because a file is damaged or missing. Programs rely on its JSON.
type Omission struct {
	ScanID  string `json:"scan_id" about:"scan"`
	File    string `json:"file" about:"damaged or missing file, of several the first; empty if the reason names it"`
	Reason  string `json:"reason" about:"what is wrong with it"`
	What    string `json:"what" about:"what is left out; empty for parts of the scan"`
	Parts   int    `json:"parts" about:"parts left out"`
	OfParts int    `json:"of_parts" about:"parts of the scan"`
	Sites   int64  `json:"sites" about:"sites not counted, as far as records say"`
	OfSites int64  `json:"of_sites" about:"sites of the scan"`
}

// Omissions are in the order in which they were found.
type Omissions []Omission

// Line says in one line what is left out; it is "" if nothing is.
func (list Omissions) Line() string {
	if len(list) == 0 {
		return ""
	}
	text := "left out: "
	for _, o := range list {
		if o.What != "" {
			text += fmt.Sprintf("%s: %s; ", o.What, o.Reason)
			continue
		}
		text += fmt.Sprintf("%s of %s parts (%s of %s sites) of scan %s: %s is damaged (%s); ",
			printable.Number(o.Parts), printable.Number(o.OfParts), printable.Number(o.Sites),
			printable.Number(o.OfSites), o.ScanID, o.File, o.Reason)
	}
	return text + "see bulkscan verify"
}

// Skip leaves out damaged files if it is On, and collects what it left out. Otherwise damage is an error. It is not for
// several goroutines at once.
type Skip struct {
	On   bool
	list Omissions
	read map[string]*commit.Scan
}

// Omissions returns what was left out so far; it is never nil.
func (k *Skip) Omissions() Omissions {
	if k == nil {
		return Omissions{}
	}
	return append(Omissions{}, k.list...)
}

// IsDamage reports whether an error says that a file or a record of a dataset has changed since it was written.
func IsDamage(err error) bool {
	_, lost := errors.AsType[*commit.LostError](err)
	return lost || table.IsDamage(err) || errors.Is(err, commit.ErrRecord)
}

// Without leaves something out if an error says that it is damaged or missing, and reports whether it does.
func (k *Skip) Without(what, scanID string, err error) bool {
	if k == nil || !k.On || !IsDamage(err) && !errors.Is(err, store.ErrNotExist) {
		return false
	}
	if o := (Omission{ScanID: scanID, Reason: err.Error(), What: what}); !slices.Contains(k.list, o) {
		k.list = append(k.list, o)
	}
	return true
}

// Lacks reports whether something of scans was left out.
func (k *Skip) Lacks(scanIDs ...string) bool {
	return slices.ContainsFunc(k.Omissions(), func(o Omission) bool { return slices.Contains(scanIDs, o.ScanID) })
}

// ReadScan opens a scan for reading. It leaves out commits that are damaged or have a damaged file, so that all tables
// have the same sites. It verifies the scan the first time, which reads all its files.
func (k *Skip) ReadScan(ctx context.Context, st store.Store, scanID string) (*commit.Scan, error) {
	if k == nil || !k.On {
		return commit.ReadScan(ctx, st, scanID)
	}
	if k.read[scanID] == nil {
		s, err := k.verified(ctx, st, scanID)
		if err != nil {
			return nil, err
		}
		if k.read == nil {
			k.read = map[string]*commit.Scan{}
		}
		k.read[scanID] = s
	}
	s := k.read[scanID]
	return &commit.Scan{Manifest: s.Manifest, Commits: s.Commits, Store: st}, nil // which readers change
}

func (k *Skip) verified(ctx context.Context, st store.Store, scanID string) (*commit.Scan, error) {
	m, err := commit.ReadManifest(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	o, damaged := Omission{ScanID: scanID}, map[string]bool{}
	_, err = verify.Dataset(ctx, st, verify.Options{ScanID: scanID, Report: func(f verify.Finding) {
		if f.Kind != verify.Damaged {
			return
		}
		ofScan := strings.HasPrefix(f.File, commit.ScanFolder(scanID)) || strings.Contains(f.File, "/part-"+scanID)
		if damaged[f.File] = true; o.File == "" && ofScan { // commits come before statistics
			o.File = f.File
			_, o.Reason, _ = strings.Cut(f.String(), f.File+": ")
		}
	}})
	if err != nil {
		return nil, err
	}
	past, err := commit.GatherHistory(ctx, st, scanID, "", func(name string, c *commit.Commit, err error) (*commit.Commit,
		error) {
		bad, sites := damaged[name], int64(0)
		if c != nil {
			sites = c.Rows
			for _, f := range c.Files {
				bad = bad || damaged[f.Name]
			}
		}
		if !bad {
			return c, err
		}
		o.Parts, o.Sites = o.Parts+1, o.Sites+sites
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	m.Without(past.Current)
	kept := commit.CountCommits(past.Current)
	o.OfParts, o.OfSites = kept.Parts+o.Parts, kept.Rows+o.Sites
	if m.State == commit.Complete && m.Counts != nil { // Counts includes parts whose records are missing
		o.OfParts, o.OfSites = max(kept.Parts, m.Counts.Parts), m.Counts.Rows
		o.Parts, o.Sites = o.OfParts-kept.Parts, o.OfSites-kept.Rows
	}
	if o.File != "" {
		k.list = append(k.list, o)
	}
	return &commit.Scan{Manifest: m, Commits: past.Current}, nil
}
