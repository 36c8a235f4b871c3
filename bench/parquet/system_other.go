//go:build !unix

package main

import "time"

var begun = time.Now()

// usage is the time since the beginning here: there is no getrusage.
func usage() time.Duration { return time.Since(begun) }
