//go:build race

package audit

// underRace says that tests take a sample of the corpora, since the race detector makes them ten times slower.
const underRace = true
