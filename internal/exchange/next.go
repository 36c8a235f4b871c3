package exchange

import "time"

// Next is what the pipeline has to do with an origin after an exchange: keep its Response, or ask again.
type Next struct {
	// Again is false when the origin is done: its Response is the one to keep.
	Again bool
	// PutOff says that the exchange was broken off because the host was silent beyond the Exchange's Patience. It
	// is as if it had not been: Past is what it was, no attempt is counted, and Target is to be asked again, with all the
	// time that the time-outs allow. Again is true.
	PutOff bool
	// Throttled says that the address which answered is asked too often: by a 429, or a 503 with a Retry-After. Its rate is to
	// be lowered, whatever becomes of the origin.
	Throttled bool
	// After is how long to wait at least before the next exchange: 0 for a redirect hop, for another address and for the
	// other scheme, longer for a later try. Rates are added to it by the schedule.
	After time.Duration
	// Target is what to ask next.
	Target Target
}

// Done is the Next of an origin whose Response is final.
var Done = Next{}
