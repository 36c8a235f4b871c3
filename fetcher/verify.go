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

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Bounds of the cached issuers.
const (
	maxIssuers = 1000 // the public web uses some hundreds
	// certificates after the server's own; with more, their order can change a full verification's result
	maxTail = 4
)

// verifier verifies certificate chains. It caches the issuing certificates that have verified, so that for most chains
// only the server's own certificate needs verifying. About a hundred issuers sign nearly all sites. Verifying an
// issuer's signature again takes as long as a plain exchange if the root signs by RSA, and ten times as long if it
// signs by P-384.
//
// Results equal those of a full verification, whatever was verified before. A cached issuer only leads to Yes, and only
// if the server sent all certificates that led to the root before. All other chains are verified in full.
type verifier struct {
	roots    *x509.CertPool // nil: the system's
	rootless bool           // this machine has no roots
	caches   bool
	known    atomic.Pointer[map[string]*issuer] // by the certificate's bytes; a map is never modified
	adding   sync.Mutex                         // held while known is replaced
}

// issuer is a cached issuing certificate.
type issuer struct {
	pool  *x509.CertPool      // the certificate as the only root
	above []*x509.Certificate // the certificates between it and the root; the server must send them
	root  *x509.Certificate
	until time.Time // the earliest expiry of the certificate and those above
}

func newVerifier(roots *x509.CertPool) *verifier {
	v := &verifier{roots: roots}
	v.known.Store(new(map[string]*issuer))
	switch runtime.GOOS {
	case "windows", "darwin", "ios":
		// The system verifies there, and has its own rules about the whole chain.
		v.caches = roots != nil
	default:
		v.caches = true
		v.rootless = roots == nil && hasNoRoots()
	}
	return v
}

// hasNoRoots reports whether the system has no roots. Without a file of them, as in many containers, crypto/x509 uses
// an empty pool and reports every certificate as signed by an unknown authority.
func hasNoRoots() bool {
	pool, err := x509.SystemCertPool()
	return err != nil || pool.Equal(x509.NewCertPool())
}

// verify reports whether the chain leads to a root and its first certificate is the host's; Unknown if this machine
// has no roots.
func (v *verifier) verify(host string, chain []*x509.Certificate) exchange.Tristate {
	switch {
	case v.rootless:
		return exchange.Unknown
	case len(chain) == 0:
		return exchange.No
	}
	leaf, tail := chain[0], chain[1:]
	if known := v.cached(leaf, tail); known != nil && !explicitPolicy(leaf) {
		if chains, err := leaf.Verify(x509.VerifyOptions{Roots: known.pool, DNSName: host}); err == nil &&
			len(chains[0]) == 2 {
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
		if v.caches {
			v.add(chains[0])
		}
		return exchange.Yes
	case errors.As(err, &noRoots):
		return exchange.Unknown
	}
	return exchange.No
}

// cached returns the cached issuer that a server sent, if the server sent the certificates above it, too; else nil.
func (v *verifier) cached(leaf *x509.Certificate, tail []*x509.Certificate) *issuer {
	if len(tail) == 0 || len(tail) > maxTail {
		return nil
	}
	known := (*v.known.Load())[string(tail[0].Raw)]
	if known == nil || !time.Now().Before(known.until) {
		return nil
	}
	// A full verification leaves out a certificate that has the key of one above it.
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

// add caches the issuer in a verified chain, if any other certificate of that issuer would verify by the same chain.
// Path lengths and key usages are then the same. Names and policies may differ, so the certificates above the issuer
// must not constrain them.
func (v *verifier) add(chain []*x509.Certificate) {
	if len(chain) < 3 {
		return // a root signed the server's certificate
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

	v.adding.Lock()
	defer v.adding.Unlock()
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

// explicitPolicy reports whether a certificate requires explicit policies (RFC 5280 §4.2.1.11).
func explicitPolicy(c *x509.Certificate) bool {
	return c.RequireExplicitPolicy > 0 || c.RequireExplicitPolicyZero
}

// constrained reports whether a certificate has name constraints (RFC 5280 §4.2.1.10), even empty ones: if the
// extension is present, crypto/x509 checks names that it otherwise ignores.
func constrained(c *x509.Certificate) bool {
	return slices.ContainsFunc(c.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(nameConstraints) })
}

var nameConstraints = asn1.ObjectIdentifier{2, 5, 29, 30}
