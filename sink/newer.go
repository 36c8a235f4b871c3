package sink

import (
	"fmt"
	"strconv"

	"github.com/parquet-go/parquet-go/format"
)

// NewerError says that a manifest, a commit or a table was written with a later SchemaVersion. What it holds may mean something
// else than it did, so that nothing is computed of it and nothing is written beside it.
type NewerError struct{ Version int }

func (e *NewerError) Error() string {
	return fmt.Sprintf("it is of schema version %d, and this bulkscan knows versions up to %d: use a newer bulkscan", e.Version, SchemaVersion)
}

func checkVersion(version int) error {
	if version > SchemaVersion {
		return &NewerError{version}
	}
	return nil
}

// checkFooter looks for the version in a table's own metadata.
func checkFooter(footer *format.FileMetaData) error {
	for _, kv := range footer.KeyValueMetadata {
		if version, err := strconv.Atoi(kv.Value); kv.Key == metaSchema && err == nil {
			return checkVersion(version)
		}
	}
	return nil
}
