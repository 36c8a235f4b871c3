package history

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// This file adds to a story what the stored files say: what changed between two episodes, or which lines decide for a
// token. It also lists the changes towards tokens that token.go finds, with the lines that decide.

// Bounds of what a story shows of a file.
const (
	maxDiff = 30                     // lines of a diff
	maxLine = audit.MaxEvidenceValue // bytes of a line
)

// Change compares the last file of an episode with the first file of the next one.
type Change struct {
	BodyBefore int64    `json:"body_hash_before,string" about:"last file of the episode before, as body_hash in sites"`
	BodyAfter  int64    `json:"body_hash_after,omitzero,string" about:"first file of this one; left out if the night is gone"`
	HasBefore  bool     `json:"stored_before" about:"the earlier file is stored"`
	HasAfter   bool     `json:"stored_after" about:"the later file is stored"`
	Diff       []string `json:"diff,omitempty" about:"first lines of a unified diff; none if the files are equal but for the ends of lines"`
	More       int      `json:"diff_more,omitzero" about:"lines left out"`
}

// Treated is how an episode treats a token. Without the stored file, it follows from the policy alone.
type Treated struct {
	Verdict  string `json:"verdict,omitzero" about:"allowed, partial, blocked; left out unless the episode has rules"`
	Via      string `json:"via,omitzero" about:"own or fallback; left out if it is star or none"`
	Follows  string `json:"follows,omitzero" about:"the name whose groups it follows"`
	Changed  bool   `json:"changed" about:"not as in the episode before; true for the first"`
	Stored   bool   `json:"stored" about:"the file is stored, and the lines are known"`
	Line     int    `json:"line,omitzero" about:"its number"`
	Group    string `json:"group,omitzero" about:"the line that names the group"`
	RuleLine int    `json:"rule_line,omitzero" about:"its number; left out if no line decides"`
	Rule     string `json:"rule,omitzero" about:"the line that decides whether / may be fetched"`
}

// storedFiles finds the stored files of episodes. It keeps the last file: an episode often ends with the file that it
// began with.
type storedFiles struct {
	ctx   context.Context
	store store.Store
	scans []MergedScan
	past  *past
	most  int64 // after two scans, find reads no further scan once it has read so many files; 0 is no bound

	hash int64
	body []byte
}

// tellChanges adds the changes of the files between episodes with rules.
func (f *storedFiles) tellChanges(s *Story) error {
	for i := 1; i < len(s.Episodes); i++ {
		before, after := &s.Episodes[i-1], &s.Episodes[i]
		if before.What.Class != ClassRules || after.What.Class != ClassRules {
			continue
		}
		first, err := f.firstBody(&after.Episode)
		if err != nil {
			return err
		}
		was, err := f.read(before.ValidTo, before.LastBody)
		if err != nil {
			return err
		}
		is, err := f.read(after.ValidFrom, first)
		if err != nil {
			return err
		}
		after.Change = &Change{BodyBefore: before.LastBody, BodyAfter: first, HasBefore: was != nil, HasAfter: is != nil}
		if was != nil && is != nil {
			after.Change.Diff, after.Change.More = unifiedDiff(was, is)
		}
	}
	return nil
}

// scansOf opens the scans of a night. It leaves out pruned scans.
func (f *storedFiles) scansOf(night Date) (scans []*commit.Scan, err error) {
	for _, s := range f.scans {
		if s.ScanDate != night.String() {
			continue
		}
		scan, err := f.past.openStored(f.ctx, s.ScanID)
		if err != nil {
			return nil, err
		}
		if scan != nil {
			scans = append(scans, scan)
		}
	}
	return scans, nil
}

// firstBody returns the hash of the file of an episode's first night, 0 if the night is gone.
func (f *storedFiles) firstBody(e *Episode) (int64, error) {
	if e.Bodies == 1 {
		return e.LastBody, nil
	}
	scans, err := f.scansOf(e.ValidFrom)
	if err != nil || len(scans) == 0 {
		return 0, err
	}
	night, err := readNight(f.ctx, scans, e.Host, nil)
	if err != nil {
		return 0, err
	}
	defer night.close()
	next := night.all()
	for o, err := next(); o != nil || err != nil; o, err = next() {
		if err != nil {
			return 0, err
		}
		if o.Site == e.Site {
			return o.Body, nil
		}
	}
	return 0, nil
}

// read returns a file that was there on a night; nil if it is not stored.
func (f *storedFiles) read(night Date, hash int64) ([]byte, error) {
	if hash == f.hash && f.body != nil {
		return f.body, nil
	}
	f.hash, f.body = hash, nil
	err := f.find(night, map[int64]bool{hash: true}, func(_ int64, body []byte) { f.body = bytes.Clone(body) })
	return f.body, err
}

// find calls found for each wanted file that the scans of a night store, and removes the file from wanted. Night 0
// stands for all nights, the newest first.
func (f *storedFiles) find(night Date, wanted map[int64]bool, found func(hash int64, body []byte)) (err error) {
	scans, files := 0, int64(0)
	for i := len(f.scans) - 1; i >= 0 && err == nil && len(wanted) > 0 && (f.most == 0 || scans < 2 ||
		files < f.most); i-- {
		if night != 0 && f.scans[i].ScanDate != night.String() {
			continue
		}
		var scan *commit.Scan
		if scan, err = f.past.openStored(f.ctx, f.scans[i].ScanID); scan != nil {
			scans, files = scans+1, files+commit.CountCommits(scan.Commits).Files[schema.Bodies]
			err = findBodies(f.ctx, scan, wanted, found)
		}
	}
	if err == nil {
		err = f.past.findBodies(f.ctx, f.store, wanted, found)
	}
	return err
}

// unifiedDiff returns the first lines of the difference of two files, and how many more there are. It takes O(n log n)
// time.
func unifiedDiff(before, after []byte) (lines []string, more int) {
	const names = 3 // lines with the names of the files
	n := 0
	for line := range bytes.Lines(diff.Diff("", unixLines(before), "", unixLines(after))) {
		switch n++; {
		case n <= names:
		case len(lines) < maxDiff:
			lines = append(lines, bounded(bytes.TrimSuffix(line, []byte("\n"))))
		default:
			more++
		}
	}
	return lines, more
}

// unixLines returns a file with a LF at the end of each line (RFC 9309 §2.2: EOL is CR, LF or CRLF).
func unixLines(file []byte) []byte {
	file = bytes.ReplaceAll(file, []byte("\r\n"), []byte("\n"))
	file = bytes.ReplaceAll(file, []byte("\r"), []byte("\n"))
	return append(bytes.TrimSuffix(file, []byte("\n")), '\n')
}

func bounded(line []byte) string { return schema.Bounded(string(line), maxLine) }

// tellToken adds how each episode treats the token. An episode's last file is judged by the registry at hand.
func (f *storedFiles) tellToken(s *Story, asked Asked) error {
	auditor := audit.New(asked.Registry)
	id, _ := asked.Registry.Find([]byte(asked.Token))
	for i := range s.Episodes {
		e := &s.Episodes[i]
		e.Token = &Treated{}
		if e.What.Class == ClassRules {
			body, err := f.read(e.ValidTo, e.LastBody)
			if err != nil {
				return err
			}
			e.Token = byPolicy(&e.What, asked.Registry, id)
			if body != nil {
				e.Token = byFile(auditor, judged(auditor, body), id)
			}
		}
		e.Token.Changed = i == 0 || e.differs(&s.Episodes[i-1])
	}
	return nil
}

// byFile says how a site with a stored file treats a token.
func byFile(auditor *audit.Auditor, site *audit.Site, id int) *Treated {
	t := auditor.Treatment(site, id)
	return &Treated{Verdict: t.Verdict, Via: t.Via, Follows: schema.Bounded(t.Follows, maxLine), Stored: true,
		Line: t.Line, Group: bounded(t.Group), RuleLine: t.RuleLine, Rule: bounded(t.Rule)}
}

// TokenChange says that a site began or ceased to block a token by its rules, as the column change of token_spells
// does. The change came after Before, the last night on which the former rules were seen, and by After, the first night
// with the new rules.
type TokenChange struct {
	Site            int64
	Host, Requested string
	Port            int32
	Token           int    // index in the registry
	Change          string // began, ceased
	Before, After   Date
	Was, Is         LastFile // the last file with the former rules, and the last file of the episode that begins at After
}

// LastFile is the file of a site on the last night of an episode. Treated is nil unless Decide has found it.
type LastFile struct {
	*Treated
	hash int64 // 0 if it is not known
}

// MostChanges bounds the changes that are listed.
const MostChanges = 100_000

// change keeps the changes from a site's last rules to the rules of an episode.
func (c *tokenCounter) change(s *siteState, kind int32, e *Episode) {
	change := TokenChange{Site: e.Site, Port: e.Port, Before: s.until, After: e.ValidFrom, Was: LastFile{hash: s.body},
		Is: LastFile{hash: e.LastBody}}
	if e.ValidTo > c.later && e.Bodies > 1 {
		change.Is.hash = 0 // the file may be of a night after the scan
	}
	for t, id := range c.all {
		if change.Change = changeOf(c.kinds[s.rules].states[t], c.kinds[kind].states[t]); change.Change != "" {
			change.Token, change.Host, change.Requested = id, strings.Clone(e.Host), strings.Clone(e.Requested)
			c.changed[t]++
			c.changes = append(c.changes, change)
		}
	}
	if len(c.changes) > 2*MostChanges {
		c.dropOldest()
	}
}

// dropOldest orders the changes, the newest first, and drops those beyond MostChanges.
func (c *tokenCounter) dropOldest() {
	slices.SortStableFunc(c.changes, func(a, b TokenChange) int {
		return cmp.Or(cmp.Compare(b.After, a.After), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Site, b.Site))
	})
	c.changes = c.changes[:min(len(c.changes), MostChanges)]
}

// Decide adds what the stored files say to changes of these counts. It reads at least the two newest nights, and no
// further night once it has read so many files; 0 is no bound.
func (c *TokenCounts) Decide(changes []TokenChange, files int64) error {
	wanted, decide := map[int64]bool{}, map[int64][]func(*audit.Site){}
	for i := range changes {
		for _, f := range []*LastFile{&changes[i].Was, &changes[i].Is} {
			wanted[f.hash] = true
			decide[f.hash] = append(decide[f.hash], func(site *audit.Site) {
				f.Treated = byFile(c.auditor, site, changes[i].Token)
			})
		}
	}
	delete(wanted, 0)
	c.stored.most = files
	return c.stored.find(0, wanted, func(hash int64, body []byte) {
		site := judged(c.auditor, body)
		for _, do := range decide[hash] {
			do(site)
		}
	})
}

// byPolicy says how a policy treats a token.
func byPolicy(p *Policy, registry *tokens.Registry, id int) *Treated {
	cells, token := p.cells(registry), &registry.Tokens[id]
	t := &Treated{Verdict: cells[id].Decision().String()}
	named := func(id int) bool { return cells[id]&audit.CellOwn != 0 }
	switch cell := cells[id]; {
	case named(id):
		t.Via, t.Follows = audit.ViaOwn.String(), token.Name
	case cell&audit.CellFallback != 0:
		t.Via, t.Follows = audit.ViaFallback.String(), registry.Tokens[token.Chain[slices.IndexFunc(token.Chain, named)]].Name
	case cell&audit.CellStar != 0:
		t.Via, t.Follows = audit.ViaStar.String(), "*"
	case !token.HeedsStar:
		t.Via = audit.ViaNone.String()
	}
	return t
}

// differs reports whether the token is treated otherwise than in the episode before: by another verdict, by the groups
// of another name, or by another rule for `/`. The positions of lines do not matter. For an episode without rules, its
// class matters.
func (e *Told) differs(before *Told) bool {
	is, was := e.Token, before.Token
	switch {
	case is.Verdict != was.Verdict || is.Verdict == "" && e.What.Class != before.What.Class:
		return true
	case is.Stored && was.Stored:
		return is.Via != was.Via || !strings.EqualFold(is.Follows, was.Follows) || is.Rule != was.Rule
	}
	return is.Via != was.Via && is.Via != "" && was.Via != ""
}
