package schema

import "github.com/cespare/xxhash/v2"

// SiteID returns the id of a site, by which scans are compared and the ledger is kept. Of 100 million
// sites, two share an id with probability 0.03 %.
func SiteID(host string, port int32, requested string) int64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(host) // a hash has no errors
	_, _ = d.Write([]byte{0, byte(port >> 8), byte(port)})
	_, _ = d.WriteString(requested)
	return int64(d.Sum64())
}

// FoldedKey returns the port and the id under which a row counts. Captures of an archive have a scheme. They count like
// the answer to a list entry without a scheme.
func FoldedKey(archive bool, host string, port int32, requested string) (foldedPort int32, site int64) {
	switch {
	case !archive:
	case requested == "http" && port == 80:
		port, requested = 443, "auto" // the port of entries without scheme and port
	case requested == "http", requested == "https":
		requested = "auto"
	}
	return port, SiteID(host, port, requested)
}
