// Package waittest answers one question: how does a test wait for another process, or for the kernel? It polls, with
// one bound for all that hangs. Other tests wait in virtual time (testing/synctest, internal/bubble).
package waittest

import "time"

// Hanging is how long a test waits for an event that a busy machine may delay, but that must come. No test demands a
// speed.
const Hanging = 5 * time.Minute

// Until polls a condition, with pauses, and reports whether it became true before Hanging was over.
func Until(pause time.Duration, holds func() bool) bool {
	for end := time.Now().Add(Hanging); !holds(); time.Sleep(pause) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
