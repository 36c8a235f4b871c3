package exchange

import "time"

// Next says what the pipeline must do with an origin after an exchange: keep its Response, or ask again.
type Next struct {
	// Again is false when the origin is done: its Response is final.
	Again bool
	// Throttled says that the address gets too many requests: it answered 429, or 503 with a Retry-After. Its rate must be
	// lowered, even if the origin is done.
	Throttled bool
	// After is the least wait before the next exchange: 0 for a redirect hop, another address or the other scheme,
	// longer for a retry. Waits for rates come on top.
	After time.Duration
	// Target is what to ask next.
	Target Target
}

// Done is the Next of an origin whose Response is final.
var Done = Next{}
