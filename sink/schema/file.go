package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// ScansFolder is the folder of all records of scans.
const ScansFolder = "_scans/"

// MaxCommit is how many bytes the record of a commit has at most.
const MaxCommit = 128 << 20

// SumOf is the SHA-256 of bytes, in hex.
func SumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// File is one file of a table, as the records have it.
type File struct {
	Table  string `json:"table"`
	Name   string `json:"name"`
	Rows   int64  `json:"rows"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Groups int    `json:"row_groups,omitempty"`
}

// DamagedError says what of a file is not as its commit says.
type DamagedError struct{ What, Expected, Found string }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s: expected %s, found %s", e.What, e.Expected, e.Found)
}
