// Package bench answers one question: how fast is bulkscan, alone and beside other programs for the same work? It is a
// module of its own, so that bulkscan does not depend on the libraries that it is compared with.
//
// The comment above each benchmark has the command that runs it, in the project's root. Contenders are sub-benchmarks
// with names such as by=temoto, which `make compare` runs in turns and shows side by side.
//
// Wall time says little on a machine with other work, so the benchmarks also report processor time, user's and
// system's: cpu-s/10k is the processor time of ten thousand operations in seconds. With -short, data sets are a
// fiftieth of their size.
//
// Some benchmarks use the files of ../shared, beside the project. They are skipped if these files are missing.
package bench
