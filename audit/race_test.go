//go:build race

package audit

// underRace thins the corpora out where everything costs ten times as much.
const underRace = true
