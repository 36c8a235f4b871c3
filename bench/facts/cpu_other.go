//go:build !unix

package facts

import "time"

// CPU is nothing here: the system does not say.
func CPU() time.Duration { return 0 }
