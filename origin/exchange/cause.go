package exchange

// Cause is the detail of an Outcome. Its texts are fixed and never contain input from the network. They are the
// values of the dataset's column `error`. The zero value has no text.
type Cause uint8

// The causes. New ones may be added anywhere: only the texts are stored.
const (
	_ Cause = iota

	CauseNoSuchName
	CauseNoAddress
	CauseServFail
	CauseDNSRefused
	CauseDNSMalformed
	CauseDNSTimeout
	CauseDNSNetwork
	CauseCNAMEChain

	CauseRefused
	CauseConnectTimeout
	CauseUnreachable
	CauseNoLocalResource

	CauseTLSTimeout
	CauseTLSAlert
	CauseTLSVersion
	CauseTLSNotTLS
	CauseTLSClosed
	CauseTLSReset
	CauseTLSUnverified
	CauseTLSOther

	CauseWriteTimeout
	CauseHeadTimeout
	CauseBodyTimeout
	CauseResetHead
	CauseResetBody
	CauseClosedBeforeHead
	CauseClosedInHead
	CauseClosedInBody
	CauseNotHTTP
	CauseBadChunk
	CauseBadLength
	CauseBadStatus
	CauseTooManyInterim
	CauseHeadTooLarge

	CauseUnknownTransfer
	CauseUnknownCoding
	CauseCorruptCoding
	CauseNestedCoding

	CauseTooManyRedirects
	CauseRedirectLoop
	CauseNoLocation
	CauseLocationInvalid
	CauseLocationScheme

	CausePrivateAddress
	CauseOptOut
	CauseOptOutAddress
	CauseNotArchived
	CauseCarried
	CauseOther
	numCauses
)

var causeTexts = [numCauses]string{
	CauseNoSuchName:       "the name does not exist (NXDOMAIN)",
	CauseNoAddress:        "the name has no address",
	CauseServFail:         "the name server failed (SERVFAIL)",
	CauseDNSRefused:       "the name server refused",
	CauseDNSMalformed:     "the name server's answer is malformed",
	CauseDNSTimeout:       "no name server answered in time",
	CauseDNSNetwork:       "no name server could be reached",
	CauseCNAMEChain:       "the chain of aliases is too long or a loop",
	CauseRefused:          "connection refused",
	CauseConnectTimeout:   "connection not taken in time",
	CauseUnreachable:      "network or host unreachable",
	CauseNoLocalResource:  "this machine had no port, memory or file left for the connection",
	CauseTLSTimeout:       "TLS handshake not finished in time",
	CauseTLSAlert:         "the server ended the TLS handshake with an alert",
	CauseTLSVersion:       "no TLS version in common",
	CauseTLSNotTLS:        "the port does not speak TLS",
	CauseTLSClosed:        "connection closed in the TLS handshake",
	CauseTLSReset:         "connection reset in the TLS handshake",
	CauseTLSUnverified:    "the certificate could not be verified (--strict-tls)",
	CauseTLSOther:         "TLS handshake failed",
	CauseWriteTimeout:     "the request could not be sent in time",
	CauseHeadTimeout:      "no response head in time",
	CauseBodyTimeout:      "the body did not end in time",
	CauseResetHead:        "connection reset before the response head ended",
	CauseResetBody:        "connection reset in the body",
	CauseClosedBeforeHead: "connection closed before the response head",
	CauseClosedInHead:     "connection closed in the response head",
	CauseClosedInBody:     "connection closed before the body's end",
	CauseNotHTTP:          "the answer is not HTTP",
	CauseBadChunk:         "broken chunked body",
	CauseBadLength:        "broken Content-Length",
	CauseBadStatus:        "the status is not from 200 to 599",
	CauseTooManyInterim:   "too many interim (1xx) responses",
	CauseHeadTooLarge:     "the response head is too large",
	CauseUnknownTransfer:  "unknown Transfer-Encoding",
	CauseUnknownCoding:    "unknown Content-Encoding",
	CauseCorruptCoding:    "the body's Content-Encoding is corrupt",
	CauseNestedCoding:     "too many Content-Encodings on one body",
	CauseTooManyRedirects: "more redirects than the budget",
	CauseRedirectLoop:     "redirect loop",
	CauseNoLocation:       "redirect without a location",
	CauseLocationInvalid:  "redirect to something that is no URL",
	CauseLocationScheme:   "redirect to a scheme that is not http or https",
	CausePrivateAddress:   "private, loopback or otherwise special address (see --allow-private)",
	CauseOptOut:           "the host is on the opt-out list",
	CauseOptOutAddress:    "the host's address is on the opt-out list",
	CauseNotArchived:      "no answer, or none of what the redirect leads to, is in the archives",
	CauseCarried:          "the archive repeats an earlier answer",
	CauseOther:            "other failure",
}

// String returns the text, at most 200 bytes; "" for the zero Cause.
func (c Cause) String() string {
	if c < numCauses {
		return causeTexts[c]
	}
	return causeTexts[CauseOther]
}
