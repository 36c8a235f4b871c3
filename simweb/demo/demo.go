// Package demo answers one question: what does a demo leave in its folder? A list of made-up hosts, the truth about
// them, and the dataset of a scan, which is compared with the truth.
package demo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/simweb/compare"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
)

// Scan is the name of a demo's scan.
const Scan = "demo"

// Folder is the folder of a demo's dataset. Beside the dataset lie files by which a user can inspect and repeat it by
// hand.
type Folder string

// List is the file with the list of hosts.
func (f Folder) List() string { return filepath.Join(string(f), "list.csv") }

// Truth is the file with what a scan of the list must find.
func (f Folder) Truth() string { return filepath.Join(string(f), "truth.jsonl") }

// Report is the page with the figures.
func (f Folder) Report() string { return filepath.Join(string(f), "report.html") }

// CA is the file with the certificate of the web's authority, for other commands.
func (f Folder) CA() string { return filepath.Join(string(f), "ca.pem") }

// MayHold refuses a folder with scans that no demo has made: a demo would delete the scan that has its name, and
// queries over the other scans would also count made-up sites. It also refuses a folder that contains a file with a
// demo's name but no demo's scan.
func (f Folder) MayHold(ctx context.Context) error {
	st, err := store.NewDir(string(f))
	if err != nil {
		return err
	}
	scans, err := commit.Scans(ctx, st)
	var ids []string
	if damaged, ok := errors.AsType[*commit.DamagedScansError](err); ok {
		for _, scan := range damaged.Scans {
			ids = append(ids, scan.ScanID)
		}
	} else if err != nil {
		return err
	}
	for _, scan := range scans {
		ids = append(ids, scan.ScanID)
	}
	foreign := ""
	for _, name := range []string{f.List(), f.Truth(), f.Report(), f.CA()} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			foreign = cmp.Or(foreign, filepath.Base(name))
		}
	}
	if _, err := os.Stat(f.Truth()); err == nil && slices.Contains(ids, Scan) {
		// an earlier demo used this folder
		ids, foreign = slices.DeleteFunc(ids, func(id string) bool { return id == Scan }), ""
	}
	if len(ids) == 0 && foreign != "" {
		return fmt.Errorf("%s holds %s, and no demo, which would replace that file; give another folder with -o",
			printable.Short(string(f)), foreign)
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	return fmt.Errorf(
		"%s holds scans that are no demo's (%s), and a demo would be counted with them; give another folder with -o",
		printable.Short(string(f)), printable.Short(strings.Join(ids, ", ")))
}

// Write writes the list and the truth of so many hosts.
func (f Folder) Write(web *simweb.Web, origins int) error {
	var hosts []string
	var lines bytes.Buffer
	for rank, host := range web.Names(origins) {
		hosts = append(hosts, host)
		fmt.Fprintf(&lines, "%d,%s\n", rank, host)
	}
	file, err := os.Create(f.Truth())
	if err != nil {
		return err
	}
	return errors.Join(web.WriteTruth(file, slices.Values(hosts), Policy()), file.Close(),
		os.WriteFile(f.List(), lines.Bytes(), 0o666))
}

// Policy contains the settings that decide how a demo's scan ends.
func Policy() simweb.Policy {
	policy := simweb.DefaultPolicy()
	policy.TrustCA = true
	return policy
}

// Compare compares the rows with what their hosts did, and says the result in a sentence. Rows that differ are no
// error.
func (f Folder) Compare(ctx context.Context) (string, error) {
	st, err := store.NewDir(string(f))
	if err != nil {
		return "", err
	}
	scan, err := commit.ReadScan(ctx, st, Scan)
	if err != nil {
		return "", err
	}
	file, err := os.Open(f.Truth())
	if err != nil {
		return "", err
	}
	defer file.Close()
	result, err := compare.Compare(ctx, scan, file)
	if err != nil {
		return "", err
	}
	return result.Sentence(), nil
}
