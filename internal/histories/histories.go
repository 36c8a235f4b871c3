// Package histories answers one question: what is left of a dataset after any commands, however each of them ended? Its
// test makes whole histories at random: scans, resumes, compactions, prunings, publications and repairs, each killed at
// any call, or run on a damaged file. After each command one oracle says what must be true.
package histories
