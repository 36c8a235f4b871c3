package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/page"
	"github.com/bulkscan/bulkscan/survey/tables"
	"github.com/bulkscan/bulkscan/terminal"
)

// reportFlags are the flags of report.
type reportFlags struct {
	choice     scanChoice
	out        string
	definition string
	title      string
	csv        string
	figure     string
	sure       survey.Uncertainty
	progress   string
}

func (a *app) reportCommand() *cobra.Command {
	f := &reportFlags{out: "report.html", definition: survey.Full}
	c := &cobra.Command{
		Use:   "report [DIR]",
		Short: "Write a page with the figures of a dataset",
		Long: `report writes one HTML file with a plot and a table for each figure: which crawlers are blocked, by whose rules and by which
sites; what was found; and, if the dataset has several nights, what changed. The file loads nothing, so that it can be
sent, printed and kept. It says how each figure was counted, with the SQL. A switch on the page changes the definition
of "blocks": ` + definitionHelp() + `
DIR is a folder, or s3://BUCKET/PREFIX, with a complete scan; without it, bulkscan-out. --csv FOLDER also writes the
table of each figure as CSV, with a datapackage.json (Frictionless Data) that describes them. --figure NAME writes one
figure instead of the page: as SVG, or its table as CSV where the name of -o ends with .csv. Nothing in DIR is
changed.`,
		Example: `  bulkscan report out
  bulkscan report out -o 2026-11.html --date 2026-11-21 --title "Who blocks AI crawlers in Norway?"
  bulkscan report out --definition rfc_effective --csv tables
  bulkscan report out --figure tokens -o crawlers.svg`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return a.interruptible(c.Context(), func(ctx context.Context) error { return a.report(ctx, placeOf(args), f) })
		},
	}
	f.choice.add(c.Flags())
	c.Flags().StringVarP(&f.out, "out", "o", f.out, "file to write: a path, s3://BUCKET/KEY, or - for standard output")
	c.Flags().StringVar(&f.definition, "definition", f.definition, "what counts as blocked when the page opens: "+
		strings.Join(survey.DefinitionNames(), ", "))
	c.Flags().StringVar(&f.figure, "figure", "",
		"write this figure alone, by the end of -o as .svg or .csv; - is SVG. Its name is that of its link on the page")
	c.Flags().StringVar(&f.title, "title", "", "title of the page")
	addUncertainty(c.Flags(), &f.sure)
	c.Flags().StringVar(&f.progress, "progress", "auto", "auto, bar, log or none")
	c.Flags().StringVar(&f.csv, "csv", "", "folder for the tables as CSV; existing files of their names are replaced")
	return c
}

func (a *app) report(ctx context.Context, dir string, f *reportFlags) error {
	definition, ok := survey.DefinitionNamed(f.definition)
	if !ok {
		return oneOf("--definition", f.definition, survey.DefinitionNames())
	}
	if err := cmp.Or(f.choice.check(), checkUncertainty(&f.sure)); err != nil {
		return err
	}
	form := strings.ToLower(path.Ext(f.out))
	picture := form == ".svg" || form == ".csv"
	switch info, err := os.Stat(f.out); {
	case f.figure != "" && !picture && f.out != "-":
		return usagef("--figure writes .svg or .csv: give -o such a name, not %q", clipped(f.out))
	case f.figure == "" && picture:
		return usagef("-o %q: the page is HTML; --figure NAME writes a figure as .svg or .csv, and --csv FOLDER all tables",
			clipped(f.out))
	case f.figure != "" && f.title != "":
		return usagef("--title is the page's, and that of a figure is what it found: give --title or --figure")
	case err == nil && info.IsDir() && f.out != "-":
		return usagef("-o: cannot write %s: it is a folder; give the name of a file", clipped(f.out))
	}
	o, err := a.reportOptions("")
	if err != nil {
		return err
	}
	o.Alone, o.Skip, o.Uncertainty = f.choice.id != "", f.choice.skip, f.sure
	st, scans, err := a.openScan(ctx, dir, f.choice)
	if err != nil {
		return err
	}
	if scans.chosen.State != commit.Complete {
		return fmt.Errorf(
			"scan %s is not complete, so that its figures would change: bulkscan scan resumes it, and bulkscan summary counts what is there", scans.chosen.ScanID)
	}
	survey, err := a.takeSurvey(ctx, st, scans, tables.Options{Options: o, AllTokens: f.csv != ""}, f.progress)
	if errors.Is(err, commit.ErrNoTable) {
		return fmt.Errorf(
			"%w; a report needs the tables sites, verdicts and policies, and statistics, which bulkscan stats computes again",
			err)
	}
	if err := a.skipped(f.choice.skip, err); err != nil {
		return err
	}
	var written bytes.Buffer
	shown := page.Options{Title: f.title, Definition: definition.Name}
	if f.figure == "" {
		err = page.Write(&written, survey, shown)
	} else {
		err = page.WriteFigure(&written, survey, shown, f.figure, form == ".csv")
		if unknown, ok := errors.AsType[*page.UnknownFigureError](err); ok {
			err = oneOf("--figure", f.figure, unknown.Known)
		}
	}
	if err != nil {
		return err
	}
	if f.csv != "" {
		if err := a.writeTables(ctx, f.csv, survey); err != nil {
			return err
		}
	}
	if f.out == "-" {
		_, err := a.stdout.Write(written.Bytes())
		return err
	}
	return a.writeFile(ctx, f.out, written.Bytes())
}

// takeSurvey gathers the survey of a scan, behind a bar.
func (a *app) takeSurvey(ctx context.Context, st store.Store, scans *found, o tables.Options,
	progress string) (*tables.Survey, error) {
	o.Counted = new(atomic.Int64)
	all := int64(0)
	for _, m := range append(scans.others[:len(scans.others):len(scans.others)], scans.chosen) {
		if m.Counts != nil && (m == scans.chosen || !o.Alone && m.InUnit(scans.chosen)) {
			all += m.Counts.Rows
		}
	}
	shown, hide := context.WithCancel(context.WithoutCancel(ctx))
	var drawn sync.WaitGroup
	drawn.Go(func() {
		terminal.ShowCount(shown, progress, "sites", a.stderr, o.Log, func() (int64, int64) { return o.Counted.Load(), all })
	})
	defer drawn.Wait()
	defer hide()
	return tables.Take(ctx, st, scans.chosen.ScanID, o)
}

// writeTables writes the tables of a survey as files of a folder.
func (a *app) writeTables(ctx context.Context, folder string, survey *tables.Survey) error {
	st, err := openPlace(folder)
	if err != nil {
		return err
	}
	return page.WriteTables(survey, func(name string, content []byte) error { return st.Put(ctx, name, content) })
}

// writeFile writes a file completely or not at all. It writes to a device or a pipe directly.
func (a *app) writeFile(ctx context.Context, name string, content []byte) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return os.WriteFile(name, content, 0)
	}
	folder, base := filepath.Dir(name), filepath.Base(name)
	if strings.Contains(name, "://") {
		folder, base = name[:strings.LastIndexByte(name, '/')], path.Base(name)
	}
	st, err := openPlace(folder)
	if err != nil {
		return err
	}
	if err := st.Put(ctx, base, content); err != nil {
		return fmt.Errorf("cannot write %s: %w", clipped(name), err)
	}
	return nil
}
