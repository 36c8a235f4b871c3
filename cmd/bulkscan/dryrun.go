package main

import (
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
	if err := terminal.DryRun(a.stdout, s, f.scheme, f.out); err != nil {
		return err
	}
	switch {
	case len(s.Doubts) > 0 && !f.acceptList:
		return usage(&scan.DoubtError{Doubts: s.Doubts})
	case s.Entries > 0 || f.allowEmpty || !f.share.Whole(): // a share may be empty
		return nil
	}
	return &exitError{exitThreshold, fmt.Errorf("no usable site on the list; see %s", survey.FormFlags(s.Nights != nil))}
}
