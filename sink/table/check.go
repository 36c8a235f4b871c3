package table

import (
	"errors"
	"fmt"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/parquet-go/parquet-go/format"
)

// Problem is a difference between a file and its record, or a contradiction within the file.
type Problem struct {
	What            string
	Expected, Found string
	Newer           int // not 0: a later bulkscan wrote the file with this schema version; only its bytes are checked
}

// Check compares a file with its record: the hash of all bytes, and what the footer says. No page is decoded: with the hash of its
// record, each is as it was written. No length in the file decides how much memory is allocated. An error is one of reading.
func Check(object store.Object, f schema.File, scanID string) (problems []Problem, err error) {
	differs := func(what string, expected, found any) {
		problems = append(problems, Problem{What: what, Expected: fmt.Sprint(expected), Found: fmt.Sprint(found)})
	}
	sum, err := store.SumOf(object)
	if err != nil {
		return nil, err
	}
	if sum != f.SHA256 {
		differs("sha256", f.SHA256, sum)
	}
	var footer *format.FileMetaData
	_, encoded, err := OpenTail(object)
	if err == nil {
		footer, err = DecodeFooter(encoded)
	}
	if err == nil {
		err = checkFooter(footer)
	}
	if later, ok := errors.AsType[*schema.NewerError](err); ok {
		return append(problems, Problem{Newer: later.Version}), nil
	}
	if err != nil {
		return append(problems, Problem{What: err.Error()}), nil
	}
	if footer.NumRows != f.Rows {
		differs("rows", f.Rows, footer.NumRows)
	}
	if n := len(footer.RowGroups); f.Groups != 0 && n != f.Groups {
		differs("row groups", f.Groups, n)
	}
	for _, kv := range footer.KeyValueMetadata {
		if kv.Key == MetaScan && kv.Value != scanID {
			differs("scan in its metadata", scanID, fmt.Sprintf("%.80q", kv.Value))
		}
	}
	return problems, nil
}
