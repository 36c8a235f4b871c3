// Package bench answers one question: how fast is bulkscan, alone and beside other programs for the same work? It is a
// module of its own, so that the libraries that bulkscan is compared with are not among those that it is made of.
//
// Each benchmark has the command that runs it in the comment above it. The command is to be run in the project's root.
// Contenders are sub-benchmarks with names such as by=temoto, which `make compare` has take turns and sets side by
// side.
//
// Wall time says little on a machine with other work, so the benchmarks also report processor time, user's and
// system's: cpu-s/10k is the processor time of ten thousand operations in seconds. With -short, data sets are a
// fiftieth of their size.
//
// The files of ../shared, beside the project, are used where they are there. Benchmarks that need them are skipped
// where they are not.
package bench
