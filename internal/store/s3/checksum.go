package s3

import (
	"crypto/md5" //nolint:gosec // The checksum that every S3 server checks, and what most make ETags of; it hides nothing.
	"encoding/base64"
	"encoding/hex"
	"hash"
)

// newChecksum computes the checksum of an upload. The server refuses bytes with another checksum than announced, so
// bytes corrupted in transit are not kept.
func newChecksum() hash.Hash { return md5.New() }

// announced returns a checksum as requests send it.
func announced(sum hash.Hash) string { return base64.StdEncoding.EncodeToString(sum.Sum(nil)) }

// etagOf returns the ETag that most servers give an object of these bytes that was uploaded in one request.
func etagOf(data []byte) string {
	sum := newChecksum()
	_, _ = sum.Write(data) // never fails
	return hex.EncodeToString(sum.Sum(nil))
}
