package report

import "strings"

// Definition is one of the meanings of "this site blocks that crawler" that docs/definitions.md has. Its name is a column
// of token_stats.
type Definition struct {
	Name     string
	Question string // that it answers of a site and a crawler, as docs/definitions.md has it
	Over     string // the column of token_stats that is its denominator: `sites` or `sites_answered`

	// Verdicts says that the table verdicts is read for it; the others need no more than sites.
	Verdicts bool
}

// Full is the definition where none is asked for. Of the six it says most plainly what the word promises, whoever the file
// names and however it is written: nothing is left to the crawler. It is also what the column `blocked` of sites lists.
const Full = "full"

// Definitions returns all, in the order of docs/definitions.md.
func Definitions() []Definition {
	return []Definition{
		{Name: "mention", Question: "does a group name the crawler?", Over: "sites"},
		{Name: "explicit_root", Question: "does its own group deny it /?", Over: "sites", Verdicts: true},
		{Name: Full, Question: "is everything denied to it, by whatever group it follows?", Over: "sites"},
		{Name: "any", Question: "is something denied to it?", Over: "sites"},
		{Name: "dpi_all", Question: `does the text of its group look like "all disallowed"?`, Over: "sites", Verdicts: true},
		{Name: "rfc_effective", Question: "may an obedient crawler fetch nothing, the state of the server included?", Over: "sites_answered"},
	}
}

// DefinitionNames lists the names of all.
func DefinitionNames() []string {
	var names []string
	for _, d := range Definitions() {
		names = append(names, d.Name)
	}
	return names
}

// DefinitionNamed returns the definition of that name, in any case.
func DefinitionNamed(name string) (d Definition, ok bool) {
	for _, d := range Definitions() {
		if strings.EqualFold(d.Name, name) {
			return d, true
		}
	}
	return Definition{}, false
}
