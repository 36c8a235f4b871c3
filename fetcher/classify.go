package fetcher

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"syscall"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// stage is the stage in which an exchange failed.
type stage uint8

const (
	connecting stage = iota + 1
	handshaking
	writing
	readingHead
	readingBody
)

// protocolError is a failure that this package detects, as opposed to an error of the system.
type protocolError exchange.Cause

func (e protocolError) Error() string { return exchange.Cause(e).String() }

// protocolOutcome is the outcome of each protocolError.
var protocolOutcome = map[exchange.Cause]exchange.Outcome{
	exchange.CauseTLSUnverified:   exchange.TLSFailed,
	exchange.CauseNotHTTP:         exchange.BadResponse,
	exchange.CauseBadChunk:        exchange.BadResponse,
	exchange.CauseBadLength:       exchange.BadResponse,
	exchange.CauseBadStatus:       exchange.BadResponse,
	exchange.CauseTooManyInterim:  exchange.BadResponse,
	exchange.CauseHeadTooLarge:    exchange.HeaderTooLarge,
	exchange.CauseUnknownTransfer: exchange.BadEncoding,
	exchange.CauseUnknownCoding:   exchange.BadEncoding,
	exchange.CauseCorruptCoding:   exchange.BadEncoding,
	exchange.CauseNestedCoding:    exchange.BadEncoding,
	exchange.CauseClosedInHead:    exchange.ClosedEarly,
	exchange.CauseClosedInBody:    exchange.ClosedEarly,
	exchange.CauseNoLocalResource: exchange.Timeout, // no memory became free before the deadline
	exchange.CausePrivateAddress:  exchange.BlockedAddress,
	exchange.CauseOptOutAddress:   exchange.OptedOut,
	exchange.CauseOther:           exchange.BadResponse,
}

// classify maps the error of an exchange to the dataset's outcome and cause. No other function interprets errors.
func classify(at stage, err error) (exchange.Outcome, exchange.Cause) {
	var own protocolError
	if errors.As(err, &own) {
		return protocolOutcome[exchange.Cause(own)], exchange.Cause(own)
	}
	// A TLS server may send an alert at any time. In TLS 1.3 it may refuse the client after the client's handshake is
	// done.
	if version, ok := alert(err); ok {
		switch {
		case at == readingBody:
			// The handshake had succeeded, so this is a transient early end.
			return exchange.ClosedEarly, exchange.CauseClosedInBody
		case version:
			return exchange.TLSFailed, exchange.CauseTLSVersion
		}
		return exchange.TLSFailed, exchange.CauseTLSAlert
	}
	timeout := isTimeout(err)
	reset := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNABORTED)
	closed := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	// An established connection counts as reset if its host becomes unreachable. FTP's refused data connection counts
	// as reset, too: its control connection shows that the host is there.
	if at != connecting && isAny(err, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ECONNREFUSED) {
		reset = true
	}
	switch at {
	case connecting:
		switch {
		case timeout:
			return exchange.ConnectTimeout, exchange.CauseConnectTimeout
		case errors.Is(err, syscall.ECONNREFUSED):
			return exchange.ConnectRefused, exchange.CauseRefused
		case isAny(err, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN, syscall.EAFNOSUPPORT):
			return exchange.ConnectFailed, exchange.CauseUnreachable
		case isAny(err, syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS,
			syscall.ENOMEM, syscall.EAGAIN):
			return exchange.ConnectFailed, exchange.CauseNoLocalResource
		case reset:
			return exchange.Reset, exchange.CauseResetHead
		}
		return exchange.ConnectFailed, exchange.CauseOther
	case handshaking:
		var record tls.RecordHeaderError
		switch {
		case errors.As(err, &record):
			return exchange.TLSFailed, exchange.CauseTLSNotTLS
		case timeout:
			return exchange.Timeout, exchange.CauseTLSTimeout
		case reset:
			return exchange.Reset, exchange.CauseTLSReset
		case closed:
			return exchange.ClosedEarly, exchange.CauseTLSClosed
		case strings.Contains(err.Error(), "unsupported protocol version"):
			// crypto/tls has no typed error for a server that selects a version below ours.
			return exchange.TLSFailed, exchange.CauseTLSVersion
		}
		return exchange.TLSFailed, exchange.CauseTLSOther
	case writing:
		switch {
		case timeout:
			return exchange.Timeout, exchange.CauseWriteTimeout
		case reset:
			return exchange.Reset, exchange.CauseResetHead
		case closed:
			return exchange.ClosedEarly, exchange.CauseClosedBeforeHead
		}
	case readingHead:
		switch {
		case timeout:
			return exchange.Timeout, exchange.CauseHeadTimeout
		case reset:
			return exchange.Reset, exchange.CauseResetHead
		case closed:
			return exchange.ClosedEarly, exchange.CauseClosedBeforeHead
		}
	case readingBody:
		switch {
		case timeout:
			return exchange.Timeout, exchange.CauseBodyTimeout
		case reset:
			return exchange.Reset, exchange.CauseResetBody
		case closed:
			return exchange.ClosedEarly, exchange.CauseClosedInBody
		}
	}
	// The rest are TLS records that do not decrypt, and errors not seen so far.
	return exchange.BadResponse, exchange.CauseOther
}

// isTimeout reports whether our deadline passed, or the kernel's (ETIMEDOUT, for a connect or an unacknowledged
// packet).
func isTimeout(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) {
		return true
	}
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// alert reports whether err is a TLS alert from the server, and whether it is protocol_version. crypto/tls wraps an
// alert in an OpError "remote error"; the alert's own type is an unexported uint8.
func alert(err error) (version, ok bool) {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return false, false
	}
	const protocolVersion = 70 // RFC 8446 §6.2
	v := reflect.ValueOf(op.Err)
	return v.Kind() == reflect.Uint8 && v.Uint() == protocolVersion, true
}

func isAny(err error, errnos ...syscall.Errno) bool {
	for _, errno := range errnos {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
