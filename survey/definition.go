package survey

import (
	"strings"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// Definition is one meaning of "this site blocks that crawler" in docs/definitions.md.
type Definition struct {
	audit.Definition

	Question    string // about a site and a crawler, as in docs/definitions.md
	Words       string // the definition in a few words, for a switch
	Over        string // the column of token_stats that is its denominator: `sites_rules` or `sites_answered`
	Verb, Verbs string // what one site does to a crawler, and what several do
	ByName      bool   // only a group of the crawler's own counts
	Undivided   string // by whose group, in one text, where the definition does not tell own, fallback and `*` apart

	// In returns the column of token_stats that has the Name.
	In func(*schema.TokenStatsRow) *int64
}

// Full is the default definition. It is the plainest meaning of the word: whatever names the file uses, nothing is
// left to the crawler. The column `blocked` of sites lists it, too.
const Full = "full"

// Unread says in prose how definitions count sites that answered without showing their rules.
const Unread = "Challenges, rate limits and failures are findings of their own, which five definitions leave out. rfc_effective counts " +
	"those from which an HTTP status came, as a crawler must take them: a server that fails is blocking, 4xx is open, and a challenge is what its status says, or with 2xx its text."

// Definitions returns all, in the order of docs/definitions.md.
func Definitions() []Definition { return definitions[:] }

var definitions = func(of [len(audit.Definitions)]audit.Definition) [len(audit.Definitions)]Definition {
	return [...]Definition{
		{of[0], "does a group name the crawler?", "named", overRules, "names", "name", true, "",
			func(r *schema.TokenStatsRow) *int64 { return &r.Mention }},
		{of[1], "does its own group deny it /?", "its own group forbids everything", overRules, "denies / by name to",
			"deny / by name to", true, "",
			func(r *schema.TokenStatsRow) *int64 { return &r.ExplicitRoot }},
		{of[2], "is everything denied to it, by whatever group it follows?", "everything forbidden", overRules, "blocks",
			"block", false, "",
			func(r *schema.TokenStatsRow) *int64 { return &r.Full }},
		{of[3], "is something denied to it?", "anything forbidden", overRules, "denies something to", "deny something to",
			false, "",
			func(r *schema.TokenStatsRow) *int64 { return &r.Any }},
		{of[4], `does the text of its group look like "all disallowed"?`, "“all” as the Data Provenance Initiative reads it",
			overRules, "blocks", "block", false, "by its own group, else by that of *",
			func(r *schema.TokenStatsRow) *int64 { return &r.DPIAll }},
		{of[5], "may an obedient crawler fetch nothing, the state of the server included?",
			"as a crawler would act (failures included)", overAnswered, "blocks", "block", false, "",
			func(r *schema.TokenStatsRow) *int64 { return &r.RFCEffective }},
	}
}(audit.Definitions)

// The denominators.
const (
	overRules    = "sites_rules"
	overAnswered = "sites_answered"
)

// Answered reports whether the definition is over sites that answered, and not over those with rules.
func (d *Definition) Answered() bool { return d.Over == overAnswered }

// Of returns the denominator in a row of token_stats.
func (d *Definition) Of(r *schema.TokenStatsRow) int64 {
	if d.Answered() {
		return r.SitesAnswered
	}
	return r.SitesRules
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

// NamesOverRules lists the names of the definitions over sites with rules. Comparisons and sensitivity count by
// these alone.
func NamesOverRules() (names []string) {
	for _, d := range Definitions() {
		if !d.Answered() {
			names = append(names, d.Name)
		}
	}
	return names
}
