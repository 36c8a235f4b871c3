package options

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/origin"
)

// This file decides what an argument URL|FILE|- means. `-` is standard input, an argument with :// is a site, and one
// that names a file is that file. Any other may be a site without its scheme, or the mistyped name of a file. If a site
// is taken for a file, the user adds https://. If a file is taken for a site, a stranger's server gets a request, and
// its answer passes for the file. So a site without a scheme must not look like a file.

// fileEndings are endings of file names. No host of the public web ends in one of them, except some below zip.
var fileEndings = strings.Fields(
	"txt text bak old orig tmp log conf cfg ini htm html json jsonl csv tsv xml yaml yml toml gz zip warc parquet")

// SiteOrFile says so in help.
const SiteOrFile = "A host without https:// must not look like the name of a file (robots.md, list.csv, folder/x, one word)."

// Site returns the site that an argument names, which is no file. Errors begin with option, the option that has the
// argument, or "".
func Site(option, arg string) (origin.Origin, error) {
	near := nearFile(arg)
	if near != "" {
		near = " (did you mean " + printable.Short(near) + "?)"
	}
	o, spelling, err := origin.ParseSpelling(arg)
	switch {
	case isPath(arg):
		return o, fmt.Errorf("%s%q: no such file%s", option, printable.Short(arg), near)
	case errors.Is(err, origin.ErrScheme):
		return o, fmt.Errorf("%s%q: %w; a file is named by its path", option, printable.Short(arg), err)
	case err != nil && strings.Contains(arg, "://"):
		return o, fmt.Errorf("%s%q: %w", option, printable.Short(arg), err)
	case err != nil:
		return o, fmt.Errorf("%s%q is neither a file nor a site: %w", option, printable.Short(arg), err)
	case strings.Contains(arg, "://"):
		return o, nil
	}
	if near == "" && spelling == origin.Full && !looksLikeFile(arg, o) {
		return o, nil
	}
	return o, fmt.Errorf("%s%q: no such file%s; if a site was meant, write https://%s", option, printable.Short(arg), near,
		printable.Short(strings.TrimLeft(arg, "/")))
}

// isPath reports whether an argument cannot name a site: it begins as paths do, or has a backslash.
func isPath(arg string) bool {
	first, _, _ := strings.Cut(arg, "/")
	return !strings.Contains(arg, "://") && (first == "." || first == ".." || strings.HasPrefix(arg, "~") ||
		strings.Contains(arg, `\`) ||
		strings.HasPrefix(arg, "/") && !strings.HasPrefix(arg, "//")) // a URL without its scheme begins with two slashes
}

// looksLikeFile reports whether an argument without a scheme rather names a file, although it has the syntax of a site:
// it begins with a folder, is one word, is named like robots.txt, or ends as files do.
func looksLikeFile(arg string, o origin.Origin) bool {
	head, _, below := strings.Cut(strings.TrimPrefix(arg, "//"), "/")
	if info, err := os.Stat(head); below && err == nil && info.IsDir() {
		return true
	}
	labels := strings.Split(o.Host(), ".")
	if _, isAddress := o.Addr(); isAddress || strings.Contains(head, ":") || labels[len(labels)-1] == "localhost" {
		return false
	}
	return len(labels) == 1 || slipsBetween(labels[0], "robots") <= 1 || slices.Contains(fileEndings,
		labels[len(labels)-1])
}

// nearFile returns a file of the working folder whose name is one slip away from an argument, or "".
func nearFile(arg string) string {
	const most = 1000 // names that are looked at
	folder, err := os.Open(".")
	if err != nil {
		return ""
	}
	defer folder.Close()
	entries, _ := folder.ReadDir(most) // what can be read
	for _, e := range entries {
		if e.Type().IsRegular() && slipsBetween(strings.ToLower(arg), strings.ToLower(e.Name())) <= 1 {
			return e.Name()
		}
	}
	return ""
}

// IsSite reports whether a text names a site of the public web: its host ends in an existing top-level domain.
func IsSite(text string) bool {
	o, err := origin.Parse(text)
	return err == nil && strings.Contains(o.Host(), ".") && o.TLD() != ""
}

// NoSite refuses a site in the place of a list.
func NoSite(paths []string) error {
	for _, path := range paths {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && IsSite(path) {
			return fmt.Errorf("%s: no such file; for one site: bulkscan check %[1]s", printable.Short(path))
		}
	}
	return nil
}

// ReadFile reads an argument that is a file, or - for standard input: at most one byte more than the limit, so that it
// shows when there is more.
func ReadFile(stdin io.Reader, arg string, limit int) (body []byte, isFile bool, err error) {
	if arg == "-" {
		body, err = io.ReadAll(io.LimitReader(stdin, int64(limit)+1))
	} else {
		info, statErr := os.Stat(arg)
		switch {
		case strings.Contains(arg, "://"), statErr != nil && !errors.Is(statErr, fs.ErrPermission):
			return nil, false, nil // no file: a site, or a mistake
		case statErr != nil:
			return nil, true, fmt.Errorf("cannot read %s: %w", printable.Short(arg), Why(statErr))
		}
		if info.IsDir() {
			return nil, true, fmt.Errorf("cannot read %s: it is a folder; a site of that name is https://%s",
				printable.Short(arg), printable.Short(arg))
		}
		body, err = inputs.ReadText(context.Background(), arg, false, limit+1)
	}
	if err != nil {
		return nil, true, fmt.Errorf("cannot read %s: %w", printable.Short(arg), Why(err))
	}
	return body, true, nil
}

// Why strips from an error the operation and the name, which the message contains already.
func Why(err error) error {
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		return path.Err
	}
	return err
}
