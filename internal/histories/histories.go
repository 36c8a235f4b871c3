// Package histories answers one question: what is left of a dataset, whatever was done to it and whatever ended it? Its
// test makes whole histories at random: scans, resumes, compactions, prunings, publications and repairs, each killed at
// any call, or run on a damaged file. One oracle says after each command what must be true.
package histories
