//go:build race

package resolve

const raceEnabled = true
