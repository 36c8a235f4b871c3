package main

import (
	"bufio"
	"context"
	"fmt"

	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/terminal"
)

// describe is --dry-run: it reads the lists in full and fetches no site. It refuses what the scan would refuse, except
// what only a write to an object store can show.
func (a *app) describe(ctx context.Context, f *scanFlags, j *scan.Job) error {
	s, err := j.Count(ctx)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(a.stdout)
	for _, file := range s.Files {
		fmt.Fprintf(w, "%s: %d lines, %s", terminal.Line(file.Name), file.Lines, terminal.Line(file.Layout))
		if file.Compression != "" {
			fmt.Fprintf(w, ", %s", file.Compression)
		}
		fmt.Fprintln(w)
	}
	if s.Nights == nil {
		fmt.Fprintf(w, "%d origins would be asked: %d of them with a scheme of their own, %d by %s first\n", s.Auto+s.Named,
			s.Named, s.Auto, f.scheme)
		fmt.Fprintf(w, "%d lines would be rejected (%d of them duplicates), %d are blank, comment or header", s.Rejects,
			s.Duplicates, s.Skipped)
	} else {
		found := s.Nights.Found()
		fmt.Fprintf(w,
			"%d captures and %d rows would be judged, and nobody asked; of the rows %d are carried and %d have no body: not observed\n", found.Captures, found.Rows, found.Carried, found.NoBody)
		for _, night := range s.Nights.List() {
			fmt.Fprintf(w, "%s: %d, before one of each site is chosen\n", night.Date, night.Rows)
		}
		fmt.Fprintf(w, "%d would be rejected, %d are no captures of a robots.txt", s.Rejects, s.Skipped)
	}
	if s.LeftOut > 0 {
		fmt.Fprintf(w, ", %d are left out by --sample", s.LeftOut)
	}
	if f.out == "-" {
		fmt.Fprint(w, "\none line per site would go to standard output\n")
	} else {
		fmt.Fprintf(w, "\nthe dataset would go to %s\n", terminal.Line(f.out))
	}
	whose := "scan " + s.ScanID + " has"
	if s.Nights != nil {
		whose = "the nights have"
	}
	switch n := s.Dataset.Kept; {
	case n > 0 && s.Dataset.Restarts:
		fmt.Fprintf(w, "%s %d sites there, which would be deleted first\n", whose, n)
	case n > 0:
		fmt.Fprintf(w, "%s %d sites there already, which would not be asked again\n", whose, n)
	}
	if err := w.Flush(); err == nil && len(s.Doubts) > 0 && !f.acceptList {
		return usage(&scan.DoubtError{Doubts: s.Doubts})
	} else if err != nil || s.Entries > 0 || f.allowEmpty || !f.share.Whole() { // a share may be empty
		return err
	}
	return &exitError{exitThreshold, fmt.Errorf("no usable site on the list; see %s", survey.FormFlags(s.Nights != nil))}
}
