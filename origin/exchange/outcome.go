package exchange

// Outcome is how an origin's last exchange ended. Datasets store its text. The zero value is no outcome.
type Outcome uint8

// The outcomes. docs/outcomes.md, generated from a table in simweb, explains them to users.
const (
	Answered        Outcome = iota + 1 // a final HTTP status arrived, whatever it is
	RedirectLimit                      // one redirect more than the budget, or a loop
	RedirectInvalid                    // a redirect without a usable http(s) location
	DNSNotFound                        // the name does not exist, or has no address
	DNSFailed                          // the servers refused or failed
	DNSTimeout                         // no server answered in time
	ConnectRefused                     // the host refused the connection
	ConnectTimeout                     // the host did not take the connection in time
	ConnectFailed                      // any other failure to connect
	TLSFailed                          // the handshake failed, or --strict-tls refused the certificate
	Timeout                            // connected, but the answer did not come in time
	Reset                              // the connection was reset
	ClosedEarly                        // the connection ended before the answer did
	BadResponse                        // what came is no HTTP response
	BadEncoding                        // the body's coding is broken or unknown
	HeaderTooLarge                     // the response head exceeds its bound
	BlockedAddress                     // we refuse to dial this address (private, loopback …)
	OptedOut                           // we do not contact this host
	NotArchived                        // the replayed archive has no answer, or none from a redirect's target
	Carried                            // the replayed archive repeats an earlier answer: the origin was not observed then
	numOutcomes
)

var outcomeTexts = [numOutcomes]string{
	Answered:        "answered",
	RedirectLimit:   "redirect_limit",
	RedirectInvalid: "redirect_invalid",
	DNSNotFound:     "dns_not_found",
	DNSFailed:       "dns_failed",
	DNSTimeout:      "dns_timeout",
	ConnectRefused:  "connect_refused",
	ConnectTimeout:  "connect_timeout",
	ConnectFailed:   "connect_failed",
	TLSFailed:       "tls_failed",
	Timeout:         "timeout",
	Reset:           "reset",
	ClosedEarly:     "closed_early",
	BadResponse:     "bad_response",
	BadEncoding:     "bad_encoding",
	HeaderTooLarge:  "header_too_large",
	BlockedAddress:  "blocked_address",
	OptedOut:        "opted_out",
	NotArchived:     "not_archived",
	Carried:         "carried",
}

// String returns the outcome's stable text, the value of the dataset's column `outcome`.
func (o Outcome) String() string {
	if o < numOutcomes && o > 0 {
		return outcomeTexts[o]
	}
	return "none"
}

// NumOutcomes is one more than the highest outcome, for arrays indexed by Outcome.
const NumOutcomes = int(numOutcomes)

// Outcomes lists every outcome in the order of declaration.
func Outcomes() []Outcome {
	all := make([]Outcome, 0, numOutcomes-1)
	for o := Answered; o < numOutcomes; o++ {
		all = append(all, o)
	}
	return all
}

// Asked reports whether the origin was asked. Opted-out and blocked origins, and those without an archived answer of
// their own, were not. They are outside of every denominator.
func (o Outcome) Asked() bool {
	return o != OptedOut && o != BlockedAddress && o != NotArchived && o != Carried && o != 0
}

// Transient reports whether a retry may have another outcome. Time-outs, resets, early closes and failing name
// servers are transient. A name that does not exist, a refusal and an invalid certificate are final. The
// statuses 5xx, 408 and 429 are transient, too, but are no outcomes.
func (o Outcome) Transient() bool {
	switch o {
	case DNSFailed, DNSTimeout, ConnectTimeout, Timeout, Reset, ClosedEarly:
		return true
	}
	return false
}

// FallsBack reports whether http may answer after an https attempt with this outcome: a failure of the connection or
// of TLS before a status came. DNS failures and addresses that we refuse would fail by http, too.
func (o Outcome) FallsBack() bool {
	switch o {
	case ConnectRefused, ConnectTimeout, ConnectFailed, TLSFailed, Timeout, Reset, ClosedEarly:
		return true
	}
	return false
}
