package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// ScansFolder is the folder of all records of scans.
const ScansFolder = "_scans/"

// IndexName is the name of the index: see package index.
const IndexName = ScansFolder + "index.parquet"

// HeadFolder is the folder of the heads: see commit.Head.
const HeadFolder = "_head/"

// LedgerName is the name of the record of the ledger: see package history.
const LedgerName = "history/_ledger.json"

// MaxLedger bounds the records of the ledger and of heads, in bytes.
const MaxLedger = 64 << 20

// MaxCommit bounds the record of a commit, in bytes.
const MaxCommit = 128 << 20

// SumOf returns the SHA-256 of data, in hex.
func SumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// File describes one file of a table in a record.
type File struct {
	Table  string `json:"table" about:"table"`
	Name   string `json:"name" about:"name below the dataset"`
	Rows   int64  `json:"rows" about:"rows"`
	Bytes  int64  `json:"bytes" about:"bytes"`
	SHA256 string `json:"sha256" about:"of the file"`
	Footer string `json:"footer_sha256,omitempty" about:"SHA-256 of the end of a Parquet file, from its footer to the last byte"`
	Groups int    `json:"row_groups,omitempty" about:"row groups"`
}

// DamagedError says which property of a file differs from its record.
type DamagedError struct{ What, Expected, Found string }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s: expected %s, found %s", e.What, e.Expected, e.Found)
}
