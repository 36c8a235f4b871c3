package commit

import (
	"cmp"
	"fmt"
	"strings"
)

// Observer says by which crawler the sites of a scan were seen, and how. Sites answer differently to another observer.
// So the figures of two observers are never added up.
type Observer struct {
	Source  string `json:"source"`                   // live, or archive: the captures of another crawler
	Product string `json:"product,omitempty"`        // product token of the User-Agent header, without its version; "" for archives
	Family  string `json:"address_family,omitempty"` // any, ipv4 or ipv6; "" for archives
	Scheme  string `json:"scheme_policy,omitempty"`  // of sites without a scheme: https+http tries https first; "" for archives
	HTTP    string `json:"http_version,omitempty"`   // HTTP/1.1; "" for archives
	Vantage string `json:"vantage,omitempty"`        // where it was, in the user's words
}

// The sources.
const (
	Live    = "live"
	Archive = "archive"
)

// String names the observer in one line, as in `live bulkscan any https+http HTTP/1.1 from frankfurt`. Observers are
// the same if these lines are equal. The index and the records of statistics contain the line.
func (o Observer) String() string {
	words := []string{cmp.Or(o.Source, "unknown")}
	for _, word := range []string{o.Product, o.Family, o.Scheme, o.HTTP} {
		if word != "" {
			words = append(words, word)
		}
	}
	if o.Vantage != "" {
		words = append(words, "from", o.Vantage)
	}
	return strings.Join(words, " ")
}

// ProductOf returns the product token of a User-Agent header. Many crawlers' headers begin like a browser's, with
// `Mozilla/5.0 (compatible; Name/1.0)`; for these it returns Name.
func ProductOf(userAgent string) string {
	if _, after, ok := strings.Cut(userAgent, "compatible;"); ok && strings.HasPrefix(userAgent, "Mozilla/") {
		userAgent = strings.TrimSpace(after)
	}
	end := strings.IndexFunc(userAgent, func(r rune) bool {
		return strings.ContainsRune("/ ;()", r) || r < ' ' || r > '~'
	})
	if end >= 0 {
		userAgent = userAgent[:end]
	}
	return userAgent[:min(len(userAgent), maxProduct)]
}

const maxProduct = 100 // bytes

// CheckGivenName refuses a user's name for a vantage or a list if it cannot be part of records, queries and citations.
func CheckGivenName(name string) error {
	const most = 100 // bytes
	if len(name) > most || strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._+:/-", r))
	}) {
		return fmt.Errorf("letters, digits, and any of . _ + : / -, at most %d", most)
	}
	return nil
}
