// Package waittest answers one question: how does a test wait for another process, or for the kernel? It polls, with
// one bound for what hangs. All else waits in virtual time (testing/synctest, internal/bubble).
package waittest

import "time"

// Hanging is how long a test waits for what a busy machine may do late, but does. No test says how quick it has to be.
const Hanging = 5 * time.Minute

// Until polls a condition, with a pause between, and reports whether it came to hold before Hanging was over.
func Until(pause time.Duration, holds func() bool) bool {
	for end := time.Now().Add(Hanging); !holds(); time.Sleep(pause) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
