package survey

import (
	"strings"

	"github.com/bulkscan/bulkscan/audit"
)

// Definition is one meaning of "this site blocks that crawler" in docs/definitions.md. Its name is a column of
// token_stats.
type Definition struct {
	audit.Definition

	Question string // about a site and a crawler, as in docs/definitions.md
	Over     string // the column of token_stats that is its denominator: `sites_rules` or `sites_answered`

	// Verdicts says that the definition needs the table verdicts; the others need only sites.
	Verdicts bool
}

// Full is the default definition. It is the plainest meaning of the word: whatever names the file uses, nothing is
// left to the crawler. The column `blocked` of sites lists it, too.
const Full = "full"

// Unread says in prose how definitions count sites that answered without showing their rules.
const Unread = "Challenges, rate limits and failures are findings of their own, which five definitions leave out. rfc_effective counts " +
	"those from which an HTTP status came, as a crawler must take them: a server that fails is blocking, 4xx is open, and a challenge is what its status says, or with 2xx its text."

// Definitions returns all, in the order of docs/definitions.md.
func Definitions() []Definition {
	of := audit.Definitions
	return []Definition{
		{Definition: of[0], Question: "does a group name the crawler?", Over: "sites_rules"},
		{Definition: of[1], Question: "does its own group deny it /?", Over: "sites_rules", Verdicts: true},
		{Definition: of[2], Question: "is everything denied to it, by whatever group it follows?", Over: "sites_rules"},
		{Definition: of[3], Question: "is something denied to it?", Over: "sites_rules"},
		{Definition: of[4], Question: `does the text of its group look like "all disallowed"?`, Over: "sites_rules", Verdicts: true},
		{Definition: of[5], Question: "may an obedient crawler fetch nothing, the state of the server included?", Over: "sites_answered"},
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

// DefinitionNamed returns the definition of that name, ignoring case.
func DefinitionNamed(name string) (d Definition, ok bool) {
	for _, d := range Definitions() {
		if strings.EqualFold(d.Name, name) {
			return d, true
		}
	}
	return Definition{}, false
}
