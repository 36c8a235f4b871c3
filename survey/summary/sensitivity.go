package summary

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
)

// This file counts one token's share again and again, each time with another choice that a survey has to make: which
// sites are in the denominator, what is assumed of unseen sites, what counts as one site, how files are read. It reads
// the bodies first, to judge them in the other dialect. Then it reads the sites, to count them, and to find the files
// that many sites have. If there are such files, it reads the sites again, for the domains of each. Memory: some 100
// bytes a registrable domain and 100 a distinct file.

// Sensitivity says how much one token's share depends on choices. Programs rely on its JSON.
type Sensitivity struct {
	ScanID          string   `json:"scan_id" about:"scan"`
	ScanDate        string   `json:"scan_date" about:"YYYY-MM-DD"`
	Scans           []string `json:"scans" about:"ids of the scans whose sites count"`
	Observer        string   `json:"observer" about:"who made the requests, and how"`
	ListID          string   `json:"list_id" about:"--list-id"`
	RegistryVersion string   `json:"registry_version" about:"token registry"`
	Token           string   `json:"token" about:"--sensitivity"`
	Definition      string   `json:"definition" about:"--definition"`

	LeftOut survey.Omissions `json:"left_out" about:"what --skip-damaged left out"`
	Rows    []Choice         `json:"rows" about:"one choice each"`
}

// Choice is a share under one choice.
type Choice struct {
	ID    string   `json:"id" about:"name of the choice"`
	About string   `json:"about" about:"the choice in words"`
	Sites int64    `json:"sites" about:"sites, domains or files that block the token"`
	Of    int64    `json:"of" about:"denominator"`
	Share *float64 `json:"share" about:"sites divided by of; null for an empty denominator, and where it could not be counted"`
	Why   string   `json:"why,omitempty" about:"why it could not be counted"`
}

// The choices, as indexes into choices.
const (
	choiceRules = iota
	choiceFile
	choiceAnswered
	choiceListed
	choiceUnobservedOpen
	choiceUnobservedBlocking
	choiceUnreadOpen
	choiceUnreadBlocking
	choiceSameDomain
	choiceDomains
	choiceFiles
	choiceUnmanaged
	choiceRFC
	numChoices
)

// sharedBy is how many domains must have a file before it counts once.
const sharedBy = 100

var choices = [numChoices]struct{ id, about string }{
	choiceRules:    {"rules", "sites with rules: the default"},
	choiceFile:     {"file", "sites with a file, HTML pages and challenges included, as a crawler reads them"},
	choiceAnswered: {"answered", "sites that answered"},
	choiceListed:   {"listed", "all sites listed"},
	choiceUnobservedOpen: {"unobserved_open",
		"lower bound: every unobserved site (not asked, challenged, rate limited, failing, unreachable) has rules and is open"},
	choiceUnobservedBlocking: {"unobserved_blocking", "upper bound: every unobserved site blocks"},
	choiceUnreadOpen: {"unread_open",
		"lower bound, also of refusals and HTML pages: each hides rules and is open"},
	choiceUnreadBlocking: {"unread_blocking", "upper bound, also of refusals and HTML pages: each hides a block"},
	choiceSameDomain:     {"same_domain", "sites with rules, without those whose redirects led to another domain"},
	choiceDomains: {"domains",
		"domains with rules: the apex, else www, else the best rank speaks for its registrable domain"},
	choiceFiles: {"files", "sites with rules; a file that 100 domains or more have counts once"},
	choiceUnmanaged: {"unmanaged",
		"sites with rules, without those with a block that a delivery network manages"},
	choiceRFC: {"rfc",
		"sites with rules, their files read by RFC 9309 to the letter, and not as Google does"},
}

// SensitivityOf reads the committed parts of a scan twice. token is one of the registry's. It takes no lock and writes
// nothing. If the scan lacks the table sites or policies, the error is commit.ErrNoTable.
func SensitivityOf(ctx context.Context, st store.Store, scanID, token string, o Options) (*Sensitivity, error) {
	o.Options = o.WithDefaults()
	fail := func(err error) error { return fmt.Errorf("cannot count %s in scan %s: %w", token, scanID, err) }
	definition, ok := survey.DefinitionNamed(cmp.Or(o.Definition, survey.Full))
	id := o.Registry.Lookup(token)
	if !ok || definition.Answered() || id < 0 {
		return nil, fail(fmt.Errorf("the registry must have the token, and the definition %.40q be one of %v", o.Definition,
			survey.NamesOverRules()))
	}
	scan, err := o.Open(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	if !scan.Has(schema.Sites) {
		return nil, fail(fmt.Errorf("table %s: %w", schema.Sites, commit.ErrNoTable))
	}
	policies, err := survey.ReadPolicies(ctx, scan, o.Registry)
	if err != nil {
		return nil, fail(err)
	}
	o.Foreign(scan, "it may say nothing of the token, which then counts as not blocked")
	m := scan.Manifest
	s := &sensitivity{scan: scan, by: &definition, cells: policies.Token(token), domains: map[uint64]domainSite{},
		files: map[int64]*sharedFile{}}
	for _, pass := range []func(context.Context) error{s.countSites, s.countDomainsOfFiles} {
		if err := pass(ctx); err != nil {
			return nil, fail(err)
		}
	}
	return &Sensitivity{
		ScanID: m.ScanID, ScanDate: m.ScanDate, Scans: survey.ScanIDs(scan.Read()), Observer: m.Observer.String(),
		ListID: m.ListID, RegistryVersion: m.RegistryVersion,
		Token: o.Registry.Tokens[id].Name, Definition: definition.Name, LeftOut: o.Skip.Omissions(),
		Rows: s.finish(),
	}, nil
}

type sensitivity struct {
	scan  *commit.Scan
	by    *survey.Definition
	cells *survey.TokenCells

	site struct {
		Seq       int64  `parquet:"seq"`
		Rank      int64  `parquet:"rank"`
		BodyHash  int64  `parquet:"body_hash"`
		Policy    int64  `parquet:"policy_id"`
		RFCPolicy int64  `parquet:"rfc_policy_id"`
		Host      string `parquet:"host"`
		Domain    string `parquet:"registrable_domain"`
		Status    int32  `parquet:"status"`
		Access    string `parquet:"access"`
		Finding   string `parquet:"finding"`
		Scope     string `parquet:"redirect_scope"`
		Managed   bool   `parquet:"managed_block"`
	}

	counts             [numChoices]part
	unobserved, unread int64
	// sites with rules that only the other dialect has read, since reaudit had no body
	notByRFC int64
	domains  map[uint64]domainSite // by hash of the registrable domain
	files    map[int64]*sharedFile // by body hash, of sites with rules
}

// part is sites of so many.
type part struct{ sites, of int64 }

// domainSite is the site that speaks for its domain.
type domainSite struct {
	rank, seq int64
	// among equal ranks the first in the alphabet speaks: seq depends on how a list or an archive was divided
	host          string
	class         uint8 // 0 apex, 1 www, 2 another
	rules, blocks bool
}

// sharedFile is a file that sites with rules have.
type sharedFile struct {
	sites   int64
	blocks  bool
	domains map[uint64]struct{} // in the second pass, of files that enough sites have; at most sharedBy
}

func (s *sensitivity) countSites(ctx context.Context) error {
	if err := survey.EachSite(ctx, s.scan, table.FieldsOf(&s.site, false, nil), s.count); err != nil {
		return err
	}
	return s.cells.Err
}

// countDomainsOfFiles reads the sites again if many share a file.
func (s *sensitivity) countDomainsOfFiles(ctx context.Context) error {
	for _, f := range s.files {
		if f.sites >= sharedBy {
			r := &s.site
			return survey.EachSite(ctx, s.scan, []table.Field{
				{Name: "registrable_domain", Into: &r.Domain}, {Name: "host", Into: &r.Host}, {Name: "finding", Into: &r.Finding},
				{Name: "body_hash", Into: &r.BodyHash},
			}, s.domainsOfFiles)
		}
	}
	return nil
}

func (s *sensitivity) count() {
	r := &s.site
	blocks := s.by.Blocks(s.cells.Of(r.Policy, r.Access, r.Host))
	rules := r.Finding == "rules"
	add := func(choice int, in, blocks bool) {
		if in {
			s.counts[choice].of++
			s.counts[choice].sites += survey.One(blocks)
		}
	}
	add(choiceRules, rules, blocks)
	add(choiceFile, r.Access == "conditional", blocks)
	add(choiceAnswered, r.Status != 0, rules && blocks)
	add(choiceListed, true, rules && blocks)
	add(choiceSameDomain, rules && r.Scope != "other_domain", blocks)
	add(choiceUnmanaged, rules && !r.Managed, blocks)
	byRFC, known := s.cells.ByID[r.RFCPolicy]
	add(choiceRFC, rules && known, s.by.Blocks(byRFC))
	s.notByRFC += survey.One(rules && !known)
	switch f, known := audit.FindingNamed(r.Finding); {
	case known && f.IsGap():
		s.unobserved++
	case f.MayHideRules():
		s.unread++
	}
	s.speak(rules, rules && blocks)
	if rules {
		f := s.files[r.BodyHash]
		if f == nil {
			f = &sharedFile{blocks: blocks}
			s.files[r.BodyHash] = f
		}
		f.sites++
	}
}

// domainOf identifies the current site's registrable domain, or the site's host where there is none.
func (s *sensitivity) domainOf() uint64 {
	return xxhash.Sum64String(cmp.Or(s.site.Domain, s.site.Host))
}

// speak makes the current site represent its domain, if it has precedence over the sites before it.
func (s *sensitivity) speak(rules, blocks bool) {
	r := &s.site
	now := domainSite{rank: r.Rank, seq: r.Seq, class: 2, rules: rules, blocks: blocks}
	if r.Rank <= 0 {
		now.rank = 1<<63 - 1
	}
	switch domain := cmp.Or(r.Domain, r.Host); {
	case r.Host == domain:
		now.class = 0
	case len(r.Host) == len(domain)+4 && r.Host[:4] == "www.":
		now.class = 1
	}
	key := s.domainOf()
	before, known := s.domains[key]
	if !known || cmp.Or(cmp.Compare(now.class, before.class), cmp.Compare(now.rank, before.rank),
		cmp.Compare(r.Host, before.host), cmp.Compare(now.seq, before.seq)) < 0 {
		now.host = strings.Clone(r.Host)
		s.domains[key] = now
	}
}

func (s *sensitivity) domainsOfFiles() {
	f := s.files[s.site.BodyHash]
	if s.site.Finding != "rules" || f == nil || f.sites < sharedBy || len(f.domains) == sharedBy {
		return
	}
	if f.domains == nil {
		f.domains = map[uint64]struct{}{}
	}
	f.domains[s.domainOf()] = struct{}{}
}

func (s *sensitivity) finish() []Choice {
	rules := s.counts[choiceRules]
	for choice, unseen := range map[int]int64{choiceUnobservedOpen: s.unobserved, choiceUnreadOpen: s.unobserved +
		s.unread} {
		open, blocking, of := survey.Bounds(rules.sites, rules.of, unseen)
		s.counts[choice], s.counts[choice+1] = part{open, of}, part{blocking, of}
	}
	for _, d := range s.domains {
		s.counts[choiceDomains].of += survey.One(d.rules)
		s.counts[choiceDomains].sites += survey.One(d.blocks)
	}
	for _, f := range s.files {
		n := f.sites
		if len(f.domains) == sharedBy {
			n = 1
		}
		s.counts[choiceFiles].of += n
		if f.blocks {
			s.counts[choiceFiles].sites += n
		}
	}
	rows := make([]Choice, numChoices)
	for i, c := range s.counts {
		rows[i] = Choice{ID: choices[i].id, About: choices[i].about, Sites: c.sites, Of: c.of}
		if i == choiceRFC && s.notByRFC > 0 {
			rows[i] = Choice{ID: choices[i].id, About: choices[i].about,
				Why: fmt.Sprintf("%d of their files were not at hand when bulkscan reaudit made policies", s.notByRFC)}
		} else if c.of > 0 {
			share := survey.Share(c.sites, c.of)
			rows[i].Share = &share
		}
	}
	return rows
}
