package terminal

import (
	"bufio"
	"fmt"
	"io"

	"github.com/bulkscan/bulkscan/scan"
)

// DryRun says what a scan of lists would do: which scheme it would begin with, and where the rows would go; - is
// standard output.
func DryRun(out io.Writer, s *scan.Counted, scheme, place string) error {
	w := bufio.NewWriter(out)
	for _, file := range s.Files {
		fmt.Fprintf(w, "%s: %d lines, %s", Line(file.Name), file.Lines, Line(file.Layout))
		if file.Compression != "" {
			fmt.Fprintf(w, ", %s", file.Compression)
		}
		fmt.Fprintln(w)
	}
	if s.Nights == nil {
		fmt.Fprintf(w, "%d origins would be asked: %d of them with a scheme of their own, %d by %s first\n", s.Auto+s.Named,
			s.Named, s.Auto, scheme)
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
	if place == "-" {
		fmt.Fprint(w, "\none line per site would go to standard output\n")
	} else {
		fmt.Fprintf(w, "\nthe dataset would go to %s\n", Line(place))
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
	return w.Flush()
}
