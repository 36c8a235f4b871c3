//go:build !unix

package main

import "time"

// usage is the processor time that this process has used so far; 0 where the system does not say.
func usage() time.Duration { return 0 }
