// Package arch answers one question: which package may do what? It has four tables: floors, arrows (which room imports
// which), doors (which room uses which library; all three in layout_test.go), and the tests that wait by the clock of
// the machine (exceptions_test.go). Its tests compare them with the source. ARCHITECTURE.md has the reasons: change it
// with the tables.
package arch
