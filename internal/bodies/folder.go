package bodies

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bulkscan/bulkscan/inputs"
)

// Files lists the files of a folder in lexical order, as paths below it. Links are not followed.
func Files(folder string) (files []string, err error) {
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// packed are the endings of names of compressed files.
var packed = []string{".gz", ".zst", ".xz", ".bz2"}

// ReadFile reads a file of a folder: `HOST.txt`, `RANK-HOST.txt`, or `HOST/robots.txt`, plain or compressed. At most maxBody+1 bytes
// of it are kept.
func ReadFile(ctx context.Context, path string, maxBody int) (*Row, error) {
	row := &Row{Text: []byte(path)}
	var compressed bool
	base := filepath.Base(path)
	for _, ending := range packed {
		if name, ok := strings.CutSuffix(base, ending); ok {
			base, compressed = name, true
			break
		}
	}
	switch name, isText := strings.CutSuffix(base, ".txt"); {
	case base == "robots.txt":
		row.Site = []byte(filepath.Base(filepath.Dir(path)))
	case isText:
		row.Site, row.Rank = ranked(name)
	default:
		row.Reason = "its name is neither HOST.txt nor HOST/robots.txt"
		return row, nil
	}
	body, err := readAll(ctx, path, compressed, maxBody)
	if err == nil {
		row.Body = body
		return row, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if e, ok := errors.AsType[*inputs.Error](err); ok {
		err = e.Err
	}
	row.Reason = err.Error()
	return row, nil
}

// ranked cuts a rank off a name. A host may begin with digits and a hyphen, so the rest must have a dot.
func ranked(name string) (host []byte, rank int64) {
	digits, rest, ok := strings.Cut(name, "-")
	if !ok || digits == "" || len(digits) > 15 || strings.Trim(digits, "0123456789") != "" || !strings.Contains(rest, ".") {
		return []byte(name), 0
	}
	for _, d := range digits {
		rank = rank*10 + int64(d-'0')
	}
	return []byte(rest), rank
}

func readAll(ctx context.Context, path string, compressed bool, maxBody int) (_ []byte, err error) {
	if compressed {
		text, closeAll, err := inputs.OpenText(ctx, path)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		return io.ReadAll(io.LimitReader(text, int64(maxBody)+1))
	}
	file, err := os.Open(path) // #nosec G304 -- the user names its folder
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, int64(maxBody)+1))
}
