package fetcher

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// Bounds of what is remembered.
const (
	maxIssuers = 1000 // the public web has some hundreds in use
	maxTail    = 4    // certificates behind a server's own; with more, order begins to matter to a verification in full
)

// verifier tells whether certificates verify. It remembers the authorities' issuing certificates that have verified, so
// that of most chains only the server's own certificate is left to check: nearly every site's was signed by one of a
// hundred issuers, and to check the signature of the issuer itself anew takes as long as a plain exchange, where a root
// signs by RSA, or as ten, where it does by P-384.
//
// Answers are those of a verification in full, whatever came before: what is remembered only says yes, and only to a chain in
// which the server sent all that led to a root then. All else is verified in full.
type verifier struct {
	roots    *x509.CertPool // nil: the system's
	rootless bool           // this machine has no roots to tell by
	remember bool
	known    atomic.Pointer[map[string]*issuer] // by the certificate's bytes; the map never changes
	learning sync.Mutex
}

// issuer is a certificate that verified.
type issuer struct {
	pool  *x509.CertPool      // it, as the only root
	above []*x509.Certificate // what the server has to send besides
	root  *x509.Certificate   // to which it led
	until time.Time           // the first end of all certificates above
}

func newVerifier(roots *x509.CertPool) *verifier {
	v := &verifier{roots: roots}
	v.known.Store(new(map[string]*issuer))
	switch runtime.GOOS {
	case "windows", "darwin", "ios":
		// There the system verifies, by rules of its own about the whole chain.
		v.remember = roots != nil
	default:
		v.remember = true
		v.rootless = roots == nil && hasNoRoots()
	}
	return v
}

// hasNoRoots reports whether the system's roots are none: where there is no file of them, as in many containers, crypto/x509
// takes an empty pool for them, and every certificate for one of an authority that nobody knows.
func hasNoRoots() bool {
	pool, err := x509.SystemCertPool()
	return err != nil || pool.Equal(x509.NewCertPool())
}

// verify reports whether the chain leads to a root and its first certificate is the host's; Unknown where this machine
// has no roots to tell.
func (v *verifier) verify(host string, chain []*x509.Certificate) exchange.Tristate {
	switch {
	case v.rootless:
		return exchange.Unknown
	case len(chain) == 0:
		return exchange.No
	}
	leaf, tail := chain[0], chain[1:]
	if known := v.recall(leaf, tail); known != nil && !explicitPolicy(leaf) {
		if chains, err := leaf.Verify(x509.VerifyOptions{Roots: known.pool, DNSName: host}); err == nil && len(chains[0]) == 2 {
			return exchange.Yes
		}
	}
	options := x509.VerifyOptions{Roots: v.roots, DNSName: host}
	if len(tail) > 0 {
		options.Intermediates = x509.NewCertPool()
		for _, certificate := range tail {
			options.Intermediates.AddCert(certificate)
		}
	}
	chains, err := leaf.Verify(options)
	var noRoots x509.SystemRootsError
	switch {
	case err == nil:
		if v.remember {
			v.learn(chains[0])
		}
		return exchange.Yes
	case errors.As(err, &noRoots):
		return exchange.Unknown
	}
	return exchange.No
}

// recall returns what is remembered of the issuer that a server sent, if it sent what is above it too; else nil.
func (v *verifier) recall(leaf *x509.Certificate, tail []*x509.Certificate) *issuer {
	if len(tail) == 0 || len(tail) > maxTail {
		return nil
	}
	known := (*v.known.Load())[string(tail[0].Raw)]
	if known == nil || !time.Now().Before(known.until) {
		return nil
	}
	// A certificate of the same key as one above would be left out of a chain.
	for _, above := range append(slices.Clip(tail), known.root) {
		if bytes.Equal(above.RawSubjectPublicKeyInfo, leaf.RawSubjectPublicKeyInfo) {
			return nil
		}
	}
	for _, above := range known.above {
		if !slices.ContainsFunc(tail, above.Equal) {
			return nil
		}
	}
	return known
}

// learn remembers the issuer in a chain that verified, if any other certificate of that issuer would verify by the same
// chain. Path lengths and key usages are then the same; what may differ are the names and policies that the
// certificates above the issuer allow, so those must say nothing about them.
func (v *verifier) learn(chain []*x509.Certificate) {
	if len(chain) < 3 {
		return // a root signed it
	}
	certificate, above := chain[1], chain[2:]
	if explicitPolicy(certificate) {
		return
	}
	until := certificate.NotAfter
	for _, c := range above {
		if explicitPolicy(c) || constrained(c) {
			return
		}
		if c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	fresh := &issuer{pool: x509.NewCertPool(), above: above[:len(above)-1], root: above[len(above)-1], until: until}
	fresh.pool.AddCert(certificate)

	v.learning.Lock()
	defer v.learning.Unlock()
	known := *v.known.Load()
	old := known[string(certificate.Raw)]
	now := time.Now()
	switch {
	case old == nil && len(known) >= maxIssuers:
		known = maps.Clone(known)
		maps.DeleteFunc(known, func(_ string, i *issuer) bool { return !now.Before(i.until) })
		if len(known) >= maxIssuers {
			return
		}
	case old != nil && len(old.above) <= len(fresh.above) && now.Before(old.until):
		return
	}
	more := maps.Clone(known)
	if more == nil {
		more = map[string]*issuer{}
	}
	more[string(certificate.Raw)] = fresh
	v.known.Store(&more)
}

// explicitPolicy reports whether a certificate demands that policies be named (RFC 5280 §4.2.1.11).
func explicitPolicy(c *x509.Certificate) bool {
	return c.RequireExplicitPolicy > 0 || c.RequireExplicitPolicyZero
}

// constrained reports whether a certificate limits the names below it (RFC 5280 §4.2.1.10). The extension alone tells: it makes
// crypto/x509 look at names that it passes over without.
func constrained(c *x509.Certificate) bool {
	return slices.ContainsFunc(c.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(nameConstraints) })
}

var nameConstraints = asn1.ObjectIdentifier{2, 5, 29, 30}
