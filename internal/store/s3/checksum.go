package s3

import (
	"crypto/md5" //nolint:gosec // The checksum that every S3 server checks, and what most make ETags of; it hides nothing.
	"encoding/base64"
	"encoding/hex"
	"hash"
)

// newChecksum counts what is uploaded. The server refuses bytes that do not have the sum that they are announced with, so
// that nothing which was changed on the way is kept.
func newChecksum() hash.Hash { return md5.New() }

// announced is a checksum as a request has it.
func announced(sum hash.Hash) string { return base64.StdEncoding.EncodeToString(sum.Sum(nil)) }

// etagOf is the ETag that most servers give an object of these bytes that came in one piece.
func etagOf(data []byte) string {
	sum := newChecksum()
	_, _ = sum.Write(data) // which never fails
	return hex.EncodeToString(sum.Sum(nil))
}
