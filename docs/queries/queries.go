// Package queries answers one question: which analyses does a dataset answer? It has the text of each query of this
// folder.
package queries

import "embed"

//go:embed *.sql
var files embed.FS

// SQL returns the query of a name, as in `blocked-by-rank`, or "" if there is none.
func SQL(name string) string {
	text, _ := files.ReadFile(name + ".sql")
	return string(text)
}
