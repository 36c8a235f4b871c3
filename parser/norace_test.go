//go:build !race

package parser_test

const underRace = false
