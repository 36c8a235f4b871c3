package commit

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/sink/schema"
)

// This file has the names inside a dataset. A part's name is read from its right, so a scan id may contain dashes and a
// shard may not.

// ScanFolder is the folder of a scan's records.
func ScanFolder(scanID string) string { return schema.ScansFolder + scanID + "/" }

// ManifestName is the name of a scan's manifest.
func ManifestName(scanID string) string { return ScanFolder(scanID) + "manifest.json" }

func lockName(scanID string) string { return ScanFolder(scanID) + "lock" }

// CommitsFolder is the folder of a scan's commits.
func CommitsFolder(scanID string) string { return ScanFolder(scanID) + "commits/" }

// FilesFolder is the folder of the records of files that may be replaced.
func FilesFolder(scanID string) string { return ScanFolder(scanID) + "files/" }

// SharesFolder is the folder of the records of a scan's shares.
func SharesFolder(scanID string) string { return ScanFolder(scanID) + "shares/" }

// ShareName is the name of the record of a share.
func ShareName(scanID, shard string) string { return SharesFolder(scanID) + shard + ".json" }

// ShareRejectsName is the name of the rejected lines of a share, until the shares are collected.
func ShareRejectsName(scanID, shard string) string { return SharesFolder(scanID) + shard + ".jsonl" }

func shareLockName(scanID, shard string) string { return SharesFolder(scanID) + shard + ".lock" }

// RejectsName is the name of a scan's rejected lines.
func RejectsName(scanID string) string { return "_rejects/" + scanID + ".jsonl" }

// FileRecordName is the name of the record with the hash of a file that no commit names (see FileRecord).
func FileRecordName(scanID, table string) string { return FilesFolder(scanID) + table + ".json" }

// RecordName is the name of a commit's record.
func RecordName(scanID, shard string, n int) string {
	return CommitsFolder(scanID) + shard + "-" + strconv.Itoa(n) + ".json"
}

// KeyOf reads the name of a commit's record; ok is false for any other name.
func KeyOf(name string) (key Key, ok bool) {
	stem, ok := strings.CutSuffix(path.Base(name), ".json")
	i := strings.LastIndexByte(stem, '-')
	if !ok || i < 0 {
		return Key{}, false
	}
	n, err := strconv.Atoi(stem[i+1:])
	return Key{stem[:i], n}, err == nil && n >= 0 && isShard(stem[:i])
}

// IsRecord reports whether a name is that of a file which bulkscan writes in the folder of a scan. Any other file there
// is a person's: no restart and no pruning deletes it.
func IsRecord(scanID, name string) bool {
	base := path.Base(name)
	stem, extension, _ := strings.Cut(base, ".")
	switch name {
	case ManifestName(scanID):
		return true
	case CommitsFolder(scanID) + base:
		_, ok := KeyOf(base)
		return ok
	case FilesFolder(scanID) + base:
		return extension == "json" && slices.Contains(RecordedFiles, stem)
	case SharesFolder(scanID) + base:
		_, err := strconv.Atoi(stem)
		return err == nil && (extension == "json" || extension == "jsonl")
	}
	return false
}

func partitionFolder(table, date string) string { return table + "/scan_date=" + date + "/" }

// partsPrefix is the beginning of the names of a scan's parts of a table; "" is all shards. Parts of other scans may
// have the same beginning: see ShardOf.
func partsPrefix(table, date, scanID, shard string) string {
	prefix := partitionFolder(table, date) + "part-" + scanID + "-"
	if shard != "" {
		prefix += shard + "-"
	}
	return prefix
}

// PartName is the name of a part's file of a table.
func PartName(table, date, scanID, shard string, n int) string {
	return partitionFolder(table, date) + "part-" + scanID + "-" + shard + "-" + strconv.Itoa(n) + ".parquet"
}

// StatsName is the name of a table that is computed from all parts of a scan (schema.TokenStats, schema.RecordStats).
func StatsName(table, date, scanID string) string {
	return partitionFolder(table, date) + "part-" + scanID + ".parquet"
}

// CompactedShard is the shard of the parts that a compaction writes. It merges parts of all shards; no shard of a scan
// may have this name.
const CompactedShard = "compacted"

// SplitPart reads a part's file name, without its folder; ok is false for other files.
func SplitPart(base string) (scanID, shard string, n int, ok bool) {
	rest, ok1 := strings.CutPrefix(base, "part-")
	rest, ok2 := strings.CutSuffix(rest, ".parquet")
	i := strings.LastIndexByte(rest, '-')
	if !ok1 || !ok2 || i < 0 {
		return "", "", 0, false
	}
	n, err := strconv.Atoi(rest[i+1:])
	if err != nil {
		return "", "", 0, false
	}
	rest = rest[:i]
	if i = strings.LastIndexByte(rest, '-'); i < 0 {
		return "", "", 0, false
	}
	return rest[:i], rest[i+1:], n, true
}

// WrittenBy returns the scan and the shard of a commit's record, of a part's file, or of the record or rejects of a
// share; "" for others.
func WrittenBy(name string) (scanID, shard string) {
	folder, base := path.Split(name)
	if scanID, shard, _, ok := SplitPart(base); ok {
		return scanID, shard
	}
	scanID, _, _ = strings.Cut(strings.TrimPrefix(folder, schema.ScansFolder), "/")
	if key, ok := KeyOf(base); ok && folder == CommitsFolder(scanID) {
		return scanID, key.Shard
	}
	if stem, _, _ := strings.Cut(base, "."); folder == SharesFolder(scanID) {
		return scanID, stem
	}
	return "", ""
}

// errScanID says that a scan id or shard cannot be part of a file name.
var errScanID = errors.New("not a valid scan id")

// CheckScanID returns an error if a text is not a valid scan id: 1 to 64 letters, digits, dashes, underscores and dots,
// beginning with a letter or digit, and not ending like the files that lie beside the scans' folders.
func CheckScanID(id string) error {
	if id == "" || len(id) > schema.MaxVersion || !alphanumeric(id[0]) {
		return fmt.Errorf("%w: %.80q", errScanID, id)
	}
	for i := 0; i < len(id); i++ {
		if c := id[i]; !alphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return fmt.Errorf("%w: %.80q", errScanID, id)
		}
	}
	for _, ending := range []string{".parquet", ".json", ".jsonl"} {
		if strings.HasSuffix(strings.ToLower(id), ending) {
			return fmt.Errorf("%w: %.80q ends like a file of the dataset", errScanID, id)
		}
	}
	return nil
}

func isShard(shard string) bool { return shard == CompactedShard || CheckShard(shard) == nil }

// CheckShard returns an error if a shard cannot be part of a file's name.
func CheckShard(shard string) error {
	if shard == "" || len(shard) > 32 {
		return fmt.Errorf("%w: shard %.80q", errScanID, shard)
	}
	for i := 0; i < len(shard); i++ {
		if !alphanumeric(shard[i]) {
			return fmt.Errorf("%w: shard %.80q", errScanID, shard)
		}
	}
	if shard == CompactedShard {
		return fmt.Errorf("%w: shard %q is for what compaction writes", errScanID, shard)
	}
	return nil
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// CheckDate returns an error unless a date has the form YYYY-MM-DD.
func CheckDate(date string) error {
	if _, err := time.Parse(time.DateOnly, date); err != nil {
		return fmt.Errorf("%.40q is not a date of the form YYYY-MM-DD", date)
	}
	return nil
}
