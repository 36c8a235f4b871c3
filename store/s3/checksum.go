package s3

import (
	"crypto/md5" //nolint:gosec // The checksum that every S3 server checks, and what most make ETags of; it hides nothing.
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
)

// checksums are those of an upload's bytes. The server refuses bytes that do not match them, so bytes corrupted in
// transit are not kept. The signature covers the SHA-256. Without it, minio-go signs a body piece by piece where the
// connection is plain HTTP, and sends an empty one with Transfer-Encoding: chunked, which public stores refuse.
type checksums struct{ md5, sha256 hash.Hash }

func newChecksums() checksums { return checksums{md5.New(), sha256.New()} }

// Write implements io.Writer. It never fails.
func (c checksums) Write(p []byte) (int, error) {
	_, _ = c.md5.Write(p)
	return c.sha256.Write(p)
}

// md5Base64 and sha256Hex return the checksums as requests announce them.
func (c checksums) md5Base64() string { return base64.StdEncoding.EncodeToString(c.md5.Sum(nil)) }
func (c checksums) sha256Hex() string { return hex.EncodeToString(c.sha256.Sum(nil)) }

// etagOf returns the ETag that most servers give an object of these bytes that was uploaded in one request.
func etagOf(data []byte) string {
	sum := md5.Sum(data)
	return hex.EncodeToString(sum[:])
}
