package main

import (
	"bufio"
	"context"
	"fmt"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/job"
	"github.com/bulkscan/bulkscan/internal/terminal"
)

// describe is --dry-run: the lists are read in full, and no network requests are made.
func (a *app) describe(ctx context.Context, f *scanFlags, j *job.Job) error {
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
	if j.Inputs.Format == inputs.WARC {
		fmt.Fprintf(w, "%d captures would be judged, and nobody asked\n", s.Named)
	} else {
		fmt.Fprintf(w, "%d origins would be asked: %d of them with a scheme of their own, %d by %s first\n", s.Auto+s.Named, s.Named, s.Auto, f.scheme)
	}
	fmt.Fprintf(w, "%d lines would be rejected (%d of them duplicates), %d are blank, comment or header", s.Rejects, s.Duplicates, s.Skipped)
	if s.LeftOut > 0 {
		fmt.Fprintf(w, ", %d are left out by --sample", s.LeftOut)
	}
	fmt.Fprintf(w, "\nthe dataset would go to %s\n", terminal.Line(f.out))
	return w.Flush()
}
