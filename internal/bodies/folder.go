package bodies

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
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

// ReadFile reads a file of a folder: `HOST.txt`, `RANK-HOST.txt`, or `HOST/robots.txt`, plain or compressed. At most maxBody+1 bytes
// of it are kept.
func ReadFile(ctx context.Context, path string, maxBody int) (*Row, error) {
	row := &Row{Text: []byte(path)}
	base := filepath.Base(path)
	ending := filepath.Ext(base)
	packed := slices.Contains([]string{".gz", ".zst", ".xz", ".bz2"}, ending)
	if packed {
		base = strings.TrimSuffix(base, ending)
	}
	switch name, isText := strings.CutSuffix(base, ".txt"); {
	case base == "robots.txt":
		row.Site = []byte(filepath.Base(filepath.Dir(path)))
	case isText:
		row.Site = []byte(name)
		digits, host, _ := strings.Cut(name, "-") // a host may begin with digits and a hyphen, so the rest must have a dot
		if n, err := strconv.ParseUint(digits, 10, 49); err == nil && strings.Contains(host, ".") {
			row.Site, row.Rank = []byte(host), int64(n)
		}
	default:
		row.Reason = "its name is neither HOST.txt nor HOST/robots.txt"
		return row, nil
	}
	text, closeText, err := inputs.OpenText(ctx, path, packed)
	if err == nil {
		row.Body, err = io.ReadAll(io.LimitReader(text, int64(maxBody)+1))
		err = errors.Join(err, closeText())
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if e, ok := errors.AsType[*inputs.Error](err); ok {
		err = e.Err
	}
	if err != nil {
		row.Reason = err.Error()
	}
	return row, nil
}
