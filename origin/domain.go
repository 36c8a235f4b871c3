package origin

import (
	"strings"

	"golang.org/x/net/publicsuffix"
)

// This file has the facts about a host in the public suffix list.

// RegistrableDomain returns the public suffix plus one label (`example.co.uk`); "" for addresses, bare suffixes and
// single labels. The result is a part of Host; finding it allocates a little.
func (o Origin) RegistrableDomain() string {
	if _, isIP := o.Addr(); isIP {
		return ""
	}
	return RegistrableDomain(o.host)
}

// RegistrableDomain returns the registrable domain of an origin's host that is a name.
func RegistrableDomain(host string) string {
	if strings.IndexByte(host, '.') < 0 {
		return ""
	}
	suffix, _ := publicsuffix.PublicSuffix(host)
	if len(host) <= len(suffix) {
		return ""
	}
	before := host[:len(host)-len(suffix)-1]
	return host[strings.LastIndexByte(before, '.')+1:]
}

// ICANNDomain returns the registrable domain, ignoring suffixes that companies have listed (`github.io`,
// `blogspot.co.uk`): `github.io` for `me.github.io` and for itself. It is "" for hosts without such a suffix. The
// result is a part of Host.
func (o Origin) ICANNDomain() string {
	if _, isIP := o.Addr(); isIP {
		return ""
	}
	suffix, _ := publicsuffix.PublicSuffix(o.host)
	if isICANN(suffix) {
		return ""
	}
	for !isICANN(suffix) {
		_, parent, _ := strings.Cut(suffix, ".")
		suffix, _ = publicsuffix.PublicSuffix(parent)
	}
	before := o.host[:len(o.host)-len(suffix)-1]
	return o.host[strings.LastIndexByte(before, '.')+1:]
}

// isICANN reports whether a public suffix is one of ICANN's, or of an unknown top-level domain. PublicSuffix must be
// given the suffix itself: for dualstack.us-east-1.amazonaws.com it reports a company's suffix as ICANN's.
func isICANN(suffix string) bool {
	if strings.IndexByte(suffix, '.') < 0 {
		return true
	}
	_, icann := publicsuffix.PublicSuffix(suffix)
	return icann
}

// TLD returns the last label if the public suffix list has it as a top-level domain of the DNS root, else "". The
// result is a part of Host; finding it allocates a little.
func (o Origin) TLD() string {
	if _, isIP := o.Addr(); isIP {
		return ""
	}
	if tld := o.host[strings.LastIndexByte(o.host, '.')+1:]; IsTLD(tld) {
		return tld
	}
	return ""
}

// IsTLD reports whether the public suffix list has a label as a top-level domain of the DNS root.
func IsTLD(label string) bool {
	if _, icann := publicsuffix.PublicSuffix(label); icann {
		return true
	}
	// A few country codes (ck, er, np …) are listed only with a wildcard, as `*.ck`.
	_, icann := publicsuffix.PublicSuffix("-." + label)
	return icann
}
