package parser

// Access says what an answer permits before any rule is read (RFC 9309 §2.3.1).
type Access uint8

// The kinds of access. The zero value is AccessUnknown.
const (
	AccessUnknown      Access = iota // no request was made
	AccessConditional                // the file's rules decide
	AccessFullAllow                  // no valid file exists: everything may be crawled
	AccessFullDisallow               // the server failed: nothing may be crawled
)

// String returns the stable text of the dataset's column `access`.
func (a Access) String() string {
	switch a {
	case AccessConditional:
		return "conditional"
	case AccessFullAllow:
		return "full_allow"
	case AccessFullDisallow:
		return "full_disallow"
	}
	return "unknown"
}

// AccessFor returns the access for a final HTTP status. 2xx: the rules decide (RFC 9309 §2.3.1.1). 3xx, a redirect
// that could not be followed, and 4xx: no file exists (§2.3.1.2, §2.3.1.3). Any other: the server failed (§2.3.1.4).
func AccessFor(status int) Access {
	switch {
	case status >= 200 && status <= 299:
		return AccessConditional
	case status >= 300 && status <= 499:
		return AccessFullAllow
	}
	return AccessFullDisallow
}
