package histories

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/bulkscan/bulkscan/audit/tokens"
	led "github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/nightly"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/diff"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// This file is the oracle. It reads the files of the dataset itself: records as JSON, tables by the Parquet library.
// From the product it uses only verify, and at the end the ledger.

// scanState is the oracle's knowledge about a scan.
type scanState struct {
	id, date    string
	there       bool // there is a manifest
	complete    bool
	publication string
	tables      []string
	rows        map[string]string // committed rows as JSON, by table and seq, or by hash of a body
	// the damaged file, until the scan is not complete or has its sites again
	damaged   string
	open      bool // a command continues it, even if it is complete
	begunAnew bool // a restart has begun, until the scan is complete
	// readers may have the state before a damage or a restart, until the scan is published again
	remade    bool
	hurt      bool                         // remade after a damage
	withdrawn bool                         // a command may have withdrawn it
	pruned    bool                         // a pruning could delete it
	without   map[string]bool              // tables that a pruning could delete
	parts     map[string]map[string]string // rows of the parts that were read before
}

// untouched reports whether no pruning could delete a table.
func (s *scanState) untouched() bool { return !s.without[schema.Bodies] && !s.without[schema.Evidence] }

// sites counts the sites that are committed.
func (s *scanState) sites() (n int) {
	for key := range s.rows {
		if strings.HasPrefix(key, schema.Sites+"/") {
			n++
		}
	}
	return n
}

// record has the fields of a part's record that the oracle reads.
type record struct {
	Shard    string        `json:"shard"`
	N        int           `json:"n"`
	Rows     int           `json:"rows"`
	Files    []schema.File `json:"files"`
	Replaces []struct {
		Shard string `json:"shard"`
		N     int    `json:"n"`
	} `json:"replaces"`
	Tombstone string `json:"tombstone"`
}

// manifest has the fields of a scan's manifest that the oracle reads.
type manifest struct {
	State       string   `json:"state"`
	ScanDate    string   `json:"scan_date"`
	Publication string   `json:"publication"`
	Tables      []string `json:"tables"`
	Restarting  bool     `json:"restarting"`
	Counts      *struct {
		Rows int `json:"rows"`
	} `json:"counts"`
}

// root is the folder of the dataset on its disk.
const root = "/data/out/"

// files returns the files of the dataset, by name.
func (h *history) files() map[string]string { return filesOn(h.disk) }

func filesOn(disk *storetest.Disk) map[string]string {
	files := map[string]string{}
	for name, data := range disk.Files() {
		files[strings.TrimPrefix(name, root)] = data
	}
	return files
}

// any reports whether there is such a scan.
func (h *history) any(of func(*scanState) bool) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(h.scans)), of)
}

func (h *history) damaged() bool { return h.any(func(s *scanState) bool { return s.damaged != "" }) }

// look compares the dataset with all data that was ever durable, after each command, however it ended. It checks the
// dataset as processes see it, and as the next loss of power would leave it. It returns the first difference, and notes
// the data that is durable now.
func (h *history) look(accident bool) error {
	seen := h.disk
	h.disk = seen.Restart(storetest.Nothing)
	durable, err := h.lookAt(filesOn(seen.Restart(storetest.Unsynced)))
	if err != nil {
		return fmt.Errorf("without what was not synced: %w", err)
	}
	if _, err := h.lookAt(h.files()); err != nil {
		return err
	}
	for id, s := range durable {
		*h.scans[id] = *s
	}
	if h.damaged() || !accident {
		return nil
	}
	if _, merged := h.files()[schema.LedgerName]; merged && !h.any(func(s *scanState) bool { return s.remade }) {
		if err := h.told(); err != nil {
			return err
		}
	}
	return h.verified(verify.Damaged)
}

// lookAt compares files, and returns their state of each scan.
func (h *history) lookAt(files map[string]string) (map[string]*scanState, error) {
	for name := range h.foreign {
		if files[name] != "mine" {
			return nil, fmt.Errorf("the foreign file %s has changed, or is gone", name)
		}
	}
	head, err := headIn(files)
	if err != nil {
		return nil, err
	}
	h.through = head.through
	for name := range files {
		if id, ok := strings.CutSuffix(strings.TrimPrefix(name, schema.ScansFolder), "/manifest.json"); ok &&
			h.scans[id] == nil {
			return nil, fmt.Errorf("there is a scan %s that no command made", id)
		}
	}
	now := map[string]*scanState{}
	for _, id := range slices.Sorted(maps.Keys(h.scans)) {
		s, err := h.scans[id].next(files, head)
		if err != nil {
			return nil, fmt.Errorf("scan %s: %w", id, err)
		}
		now[id] = s
	}
	return now, lookAtIndex(now, files)
}

// caused reports whether a head was written for this cause, about a scan, with this reason.
func (h *history) caused(what, scanID, why string) bool {
	for name, data := range h.files() {
		var head struct{ Causes []commit.Cause }
		if path.Dir(name)+"/" == schema.HeadFolder && json.Unmarshal([]byte(data), &head) == nil &&
			slices.ContainsFunc(head.Causes, func(c commit.Cause) bool {
				return c.What == what && c.Why == why && slices.Contains(c.Scans, scanID)
			}) {
			return true
		}
	}
	return false
}

// headState has the fields of the newest head that the oracle reads.
type headState struct {
	publication map[string]string   // by scan
	without     map[string][]string // by scan: tables that a pruning has taken
	through     string
}

func headIn(files map[string]string) (*headState, error) {
	h := &headState{publication: map[string]string{}, without: map[string][]string{}}
	newest := ""
	for name, data := range files {
		if path.Dir(name)+"/" == schema.HeadFolder && len(path.Base(name)) == len("00000001.json") && data != "" &&
			data != "mine" {
			newest = max(newest, name)
		}
	}
	if newest == "" {
		return h, nil
	}
	type named struct {
		ScanID      string   `json:"scan_id"`
		Publication string   `json:"publication"`
		Pruned      []string `json:"pruned_tables"`
	}
	var head struct {
		Months []schema.File `json:"months"`
		Scans  []named       `json:"scans"`
		Pruned *schema.File  `json:"pruned"`
	}
	if err := json.Unmarshal([]byte(files[newest]), &head); err != nil {
		return nil, fmt.Errorf("%s: %w", newest, err)
	}
	all := head.Scans
	for _, f := range head.Months {
		var month []named
		if err := json.Unmarshal([]byte(files[f.Name]), &month); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		all = append(all, month...)
	}
	for _, s := range all {
		h.publication[s.ScanID], h.without[s.ScanID] = s.Publication, s.Pruned
	}
	if head.Pruned == nil {
		return h, nil
	}
	var pruned struct {
		Through string `json:"through"`
	}
	err := json.Unmarshal([]byte(files[head.Pruned.Name]), &pruned)
	h.through = pruned.Through
	return h, err
}

// next returns the state of a scan in files, or an error if it cannot follow the earlier state.
func (s *scanState) next(files map[string]string, head *headState) (*scanState, error) {
	was, is := *s, *s
	s = &is
	data, there := files[schema.ScansFolder+s.id+"/manifest.json"]
	if s.there = there; !there {
		if was.there && !s.pruned && !s.begunAnew {
			return nil, errors.New("its manifest is gone")
		}
		if parts, err := live(s.id, files); err != nil || len(parts) > 0 && !s.pruned {
			return nil, fmt.Errorf("it has %d parts and no manifest, %w", len(parts), err)
		}
		return s, nil
	}
	var m manifest
	if err := json.Unmarshal([]byte(data), &m); err != nil {
		return nil, err
	}
	m.Tables = slices.DeleteFunc(m.Tables, func(table string) bool { return slices.Contains(head.without[s.id], table) })
	s.complete, s.tables = m.State == "complete", m.Tables
	if publication := head.publication[s.id]; publication != "" || !s.pruned || s.date > head.through {
		// else its files are about to be deleted
		s.publication = cmp.Or(publication, "pending")
	}
	for _, table := range schema.AllTables {
		if !slices.Contains(m.Tables, table) && !s.without[table] {
			return nil, fmt.Errorf("it has lost the table %s", table)
		}
	}
	rows, err := s.read(files)
	if err != nil {
		return nil, err
	}
	switch {
	case s.begunAnew:
		s.date = m.ScanDate
	case m.ScanDate != s.date:
		return nil, fmt.Errorf("its date is %s, and was %s", m.ScanDate, s.date)
	case was.complete && !s.complete && was.damaged == "" && !s.open:
		return nil, errors.New("it was complete, and is no more")
	case was.publication != "" && was.publication != "pending" && was.publication != s.publication &&
		!legal[was.publication+" "+s.publication] &&
		!(s.withdrawn && was.publication == "published" && s.publication == "discarded"):
		return nil, fmt.Errorf("it was %s, and is %s", was.publication, s.publication)
	}
	if kept := same(was.rows, rows); s.begunAnew && kept > 0 && kept < was.sites() {
		return nil, fmt.Errorf("a restart has left %d sites of %d", kept, was.sites())
	}
	for key, row := range was.rows {
		table, _, _ := strings.Cut(key, "/")
		if rows[key] != row && !s.begunAnew && slices.Contains(m.Tables, table) {
			return nil, fmt.Errorf("%s was committed as\n\t%s\nand is\n\t%s", key, row, rows[key])
		}
		if !slices.Contains(m.Tables, table) {
			rows[key] = row // as it was
		}
	}
	s.rows = rows
	if was.damaged != "" && s.complete && s.sites() < len(hosts) {
		s.damaged = was.damaged // a repair has taken it out, and was killed before it said so in the manifest
	}
	if s.complete && s.damaged == "" {
		if s.sites() != len(hosts) || m.Counts == nil || m.Counts.Rows != len(hosts) {
			return nil, fmt.Errorf("it is complete with %d sites of %d, and counts %+v", s.sites(), len(hosts), m.Counts)
		}
		s.begunAnew, s.open = s.begunAnew && m.Restarting, false
	}
	return s, nil
}

// same counts the sites that have one row in both.
func same(a, b map[string]string) (n int) {
	for key, row := range a {
		if strings.HasPrefix(key, schema.Sites+"/") && b[key] == row {
			n++
		}
	}
	return n
}

// legal are the publications that may follow one that a judge or a person decided.
var legal = map[string]bool{"held published": true, "held discarded": true, "discarded published": true}

// live returns the records that count: no other has replaced them, and no restart has.
func live(id string, files map[string]string) (all []record, err error) {
	replaced, from := map[string]bool{}, map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasPrefix(name, schema.ScansFolder+id+"/commits/") || path.Base(name)[0] == '.' || files[name] == "" ||
			files[name] == "mine" {
			// a draft, a claimed name, or not the dataset's
			continue
		}
		var r record
		if err := json.Unmarshal([]byte(files[name]), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, r)
		for _, old := range r.Replaces {
			replaced[fmt.Sprint(old.Shard, old.N)] = true
		}
		if r.Tombstone == "restarted" {
			from[r.Shard] = max(from[r.Shard], r.N)
		}
	}
	return slices.DeleteFunc(all, func(r record) bool {
		return r.Tombstone != "" || replaced[fmt.Sprint(r.Shard, r.N)] || r.N < from[r.Shard]
	}), nil
}

// read returns the rows of a scan's parts that count. Each must occur once, be complete, and match the host's answer.
func (s *scanState) read(files map[string]string) (map[string]string, error) {
	parts, err := live(s.id, files)
	if err != nil {
		return nil, err
	}
	rows, damaged := map[string]string{}, ""
	for i := range parts {
		if slices.ContainsFunc(parts[i].Files, func(f schema.File) bool { return f.Name == s.damaged }) {
			damaged = s.damaged
			continue
		}
		part, err := s.readPart(&parts[i], files)
		if err != nil {
			return nil, err
		}
		for key, row := range part {
			if _, twice := rows[key]; twice && !strings.HasPrefix(key, schema.Bodies+"/") &&
				!strings.HasPrefix(key, schema.Policies+"/") {
				// once a part
				return nil, fmt.Errorf("%s is there twice", key)
			}
			rows[key] = row
		}
	}
	s.damaged = damaged
	return rows, nil
}

// readPart returns the rows of one part by table and seq; several rows of a site are one text. For a part that it has
// read before, it compares only the bytes.
func (s *scanState) readPart(part *record, files map[string]string) (map[string]string, error) {
	key := fmt.Sprint(s.tables)
	for _, f := range part.Files {
		if !slices.Contains(s.tables, f.Table) {
			continue
		}
		sum := sha256.Sum256([]byte(files[f.Name]))
		if hex.EncodeToString(sum[:]) != f.SHA256 {
			return nil, fmt.Errorf("%s is not what was committed: %d bytes", f.Name, len(files[f.Name]))
		}
		key += f.SHA256
	}
	rows, err := s.parts[key], error(nil)
	if rows == nil {
		rows, err = s.readNew(part, files)
		s.parts[key] = rows
	}
	return rows, err
}

func (s *scanState) readNew(part *record, files map[string]string) (map[string]string, error) {
	rows := map[string]string{}
	said := map[int64]string{}
	var all []schema.SiteRow
	for _, f := range part.Files {
		data := files[f.Name]
		if !slices.Contains(s.tables, f.Table) {
			continue
		}
		n, err := 0, error(nil)
		switch f.Table {
		case schema.Sites:
			all, err = rowsOf[schema.SiteRow](data)
			n = len(all)
		case schema.Verdicts:
			n, err = addRows(rows, f.Table, data, func(r *schema.VerdictRow) (int64, string) { return r.Seq, r.Token })
		case schema.Evidence:
			n, err = addRows(rows, f.Table, data, func(r *schema.EvidenceRow) (int64, string) {
				return r.Seq,
					fmt.Sprint(r.Line, r.Kind)
			})
		case schema.Bodies:
			n, err = addRows(rows, f.Table, data, func(r *schema.BodyRow) (int64, string) {
				said[r.BodyHash] = string(r.Body)
				return r.BodyHash, ""
			})
		case schema.Policies:
			n, err = addRows(rows, f.Table, data, func(r *schema.PolicyRow) (int64, string) { return r.PolicyID, "" })
		}
		if err != nil || int64(n) != f.Rows {
			return nil, fmt.Errorf("%s: %d rows of %d, %w", f.Name, n, f.Rows, err)
		}
	}
	if len(all) != part.Rows {
		return nil, fmt.Errorf("part %s-%d has %d sites of %d", part.Shard, part.N, len(all), part.Rows)
	}
	for i := range all {
		row := &all[i]
		want := answers(row.Seq, time.UnixMilli(row.FetchedAt))
		body, kept := said[row.BodyHash]
		key := fmt.Sprintf("%s/%d", schema.Sites, row.Seq)
		switch {
		case hosts[row.Seq] == "" || row.Host != hosts[row.Seq] || row.ScanID != s.id:
			return nil, fmt.Errorf("seq %d is the site %s of %s", row.Seq, row.Host, row.ScanID)
		case int(row.Status) != want.status || int(row.BodyBytes) != len(want.body):
			return nil, fmt.Errorf("%s says %d with %d bytes, and said %+v", row.Host, row.Status, row.BodyBytes, want)
		case want.body != "" && slices.Contains(s.tables, schema.Bodies) && (!kept || body != want.body):
			return nil, fmt.Errorf("the body of %s is %q, and was %q", row.Host, body, want.body)
		case slices.Contains(s.tables, schema.Verdicts) &&
			strings.Contains(rows[fmt.Sprintf("%s/%d", schema.Verdicts, row.Seq)], blocksGPTBot) != strings.HasPrefix(want.body,
				"User-agent: GPTBot"):
			return nil, fmt.Errorf("%s said %q, and has the verdicts %q", row.Host, want.body,
				rows[fmt.Sprintf("%s/%d", schema.Verdicts, row.Seq)])
		case slices.Contains(s.tables, schema.Evidence) && strings.Count(rows[fmt.Sprintf("%s/%d", schema.Evidence, row.Seq)],
			"\n") != strings.Count(want.body, "Foo:")+strings.Count(want.body, "Sitemap:"):
			return nil, fmt.Errorf("%s said %q, and has the evidence %q", row.Host, want.body,
				rows[fmt.Sprintf("%s/%d", schema.Evidence, row.Seq)])
		case slices.Contains(s.tables, schema.Policies) && row.Access == "conditional" &&
			strings.Contains(rows[fmt.Sprintf("%s/%d", schema.Policies, row.PolicyID)],
				`"OwnBlocked":["GPTBot"`) != strings.HasPrefix(want.body, "User-agent: GPTBot"):
			return nil, fmt.Errorf("%s said %q, and has the policy %q", row.Host, want.body,
				rows[fmt.Sprintf("%s/%d", schema.Policies, row.PolicyID)])
		case rows[key] != "":
			return nil, fmt.Errorf("%s is there twice", row.Host)
		}
		text, err := json.Marshal(row)
		if err != nil {
			return nil, err
		}
		rows[key] = string(text)
	}
	return rows, nil
}

// blocksGPTBot is in the verdict on a site that names GPTBot and forbids it everything.
const blocksGPTBot = `"Token":"GPTBot","Known":true,"Category":"ai","Verdict":"blocked"`

func rowsOf[T any](data string) ([]T, error) {
	return parquet.Read[T](strings.NewReader(data), int64(len(data)))
}

// addRows adds the rows of a file by their site; within a site each row has its own name.
func addRows[T any](rows map[string]string, table, data string, of func(*T) (int64, string)) (int, error) {
	all, err := rowsOf[T](data)
	seen := map[string]bool{}
	for i := range all {
		seq, name := of(&all[i])
		key := fmt.Sprintf("%s/%d", table, seq)
		text, err := json.Marshal(&all[i])
		if err != nil {
			return 0, err
		}
		if name == "" { // a body or a policy, once for each part that was merged
			rows[key] = string(text)
			continue
		}
		if seen[key+name] {
			return 0, fmt.Errorf("%s %s is there twice", key, name)
		}
		seen[key+name] = true
		rows[key] += string(text) + "\n"
	}
	return len(all), err
}

// lookAtIndex reads the index as a reader does: each scan in it has each of its sites once.
func lookAtIndex(scans map[string]*scanState, files map[string]string) error {
	data, there := files[schema.IndexName]
	if !there {
		return nil
	}
	all, err := rowsOf[index.Row](data)
	if err != nil {
		return fmt.Errorf("the index: %w", err)
	}
	sites := map[string][]string{}
	for i := range all {
		row := &all[i]
		s := scans[row.ScanID]
		if s == nil || s.hurt || row.Table == "" || !slices.Contains(s.tables, row.Table) {
			continue
		}
		if _, there := files[row.Name]; !there {
			return fmt.Errorf("the index names %s, which is not there", row.Name)
		}
		if s.remade {
			continue
		}
		if s.publication != "published" || !s.complete && !s.open {
			return fmt.Errorf("the index names files of scan %s, which is %s", s.id, s.publication)
		}
		if row.Table != schema.Sites {
			continue
		}
		part := &record{Rows: int(row.Rows), Files: []schema.File{{Table: row.Table, Name: row.Name, Rows: row.Rows}}}
		sum := sha256.Sum256([]byte(files[row.Name]))
		part.Files[0].SHA256 = hex.EncodeToString(sum[:])
		rows, err := (&scanState{id: s.id, tables: []string{schema.Sites}, parts: s.parts}).readPart(part, files)
		if err != nil {
			return fmt.Errorf("the index leads to %w", err)
		}
		sites[s.id] = slices.AppendSeq(sites[s.id], maps.Keys(rows))
	}
	for id, seqs := range sites {
		if all := slices.Compact(slices.Sorted(slices.Values(seqs))); len(all) != len(seqs) || len(all) != len(hosts) {
			return fmt.Errorf("the index leads to the sites %v of scan %s", seqs, id)
		}
	}
	return nil
}

// verified returns an error for findings of these kinds by the product's own verification.
func (h *history) verified(kinds ...verify.FindingKind) error {
	st := h.store()
	var found []error
	report := func(f verify.Finding) {
		if slices.Contains(kinds, f.Kind) && !h.foreign[f.File] && (f.Kind != verify.Leftover || f.File != h.left &&
			!h.tooLate(f.File)) {
			found = append(found, errors.New("verify: "+f.String()))
		}
	}
	ctx := context.Background()
	_, err := verify.Dataset(ctx, st, verify.Options{Report: report})
	return errors.Join(append(found, err, led.Verify(ctx, st, report), nightly.Verify(ctx, st, report))...)
}

// incidental matches times, and sizes of files, in answers.
var incidental = regexp.MustCompile(
	`[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(Z| UTC)|"(dataset_)?bytes":[0-9]+|"sum":"[0-9a-f]+"`)

// answers returns the readers' answers about a dataset, by question. A reader that reports a problem has no answer.
func (h *history) answers(st store.Store) map[string]string {
	ctx, all := context.Background(), map[string]string{}
	var warned strings.Builder
	o := survey.Options{Registry: tokens.Default(),
		Log: slog.New(slog.NewTextHandler(&warned, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	ask := func(what string, answer any, err error) {
		text, _ := json.Marshal(answer)
		if err == nil && warned.Len() == 0 && !bytes.Contains(text, []byte(`"lost":[{`)) &&
			!bytes.Contains(text, []byte(`"state":"damaged"`)) {
			all[what] = incidental.ReplaceAllString(string(text), "")
		}
		warned.Reset()
	}
	var ids []string
	for id, s := range h.scans {
		if s.there && s.complete && s.publication == "published" {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(strings.Compare(h.scans[a].date, h.scans[b].date), strings.Compare(a, b))
	})
	for i, id := range ids {
		figures, err := summary.Of(ctx, st, id, summary.Options{Options: o})
		ask("summary of "+id, figures, err)
		if i > 0 {
			diff, err := diff.Scans(ctx, diff.ScanAt{Store: st, ScanID: ids[i-1]}, diff.ScanAt{Store: st, ScanID: id},
				diff.Options{Options: o})
			ask("diff of "+id, diff, err)
		}
		if i == len(ids)-1 {
			taken, err := tables.Take(ctx, st, id, tables.Options{Options: o, AllTokens: true})
			ask("report of "+id, taken, err)
		}
	}
	for _, host := range hosts {
		stories, err := led.Stories(ctx, st, host, led.Asked{})
		ask("history of "+host, stories, err)
	}
	list, err := nightly.Listing(ctx, st)
	ask("status", list, err)
	return all
}

// like compares the readers' answers with those about another dataset.
func (h *history) like(disk *storetest.Disk) error {
	got, want := h.answers(h.store()), h.answers(dirOn(disk))
	for what, answer := range got {
		if want[what] != "" && answer != want[what] {
			at := 0
			for at < min(len(answer), len(want[what])) && answer[at] == want[what][at] {
				at++
			}
			return fmt.Errorf("the %s says …%.200s\nand without damage …%.200s", what, answer[max(0, at-40):],
				want[what][max(0, at-40):])
		}
	}
	return nil
}

// handed compares the data that readers get with the published scans, after a command that publishes has succeeded.
func (h *history) handed() error {
	st := h.store()
	ledger, err := led.ReadLedger(context.Background(), st)
	if errors.Is(err, store.ErrNotExist) {
		ledger, err = &led.Ledger{}, nil
	}
	if err != nil {
		return err
	}
	var names []string
	for _, s := range ledger.Scans {
		names = append(names, s.ScanID)
	}
	data, err := store.ReadAll(context.Background(), st, schema.IndexName, 1<<24)
	if err != nil {
		return err
	}
	all, err := parquet.Read[index.Row](bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	for id, s := range h.scans {
		published, merged := s.there && s.complete && s.publication == "published" && !(s.pruned && s.date <= h.through),
			slices.Contains(names, s.id)
		if published && !merged && s.date > h.through && id[0] != 'o' || s.there && !published && merged && !s.remade &&
			!s.open && !s.pruned {
			return fmt.Errorf("scan %s is %s, and the ledger has %v", s.id, s.publication, names)
		}
		if !published {
			if s.there && s.publication == "discarded" {
				if merged && !s.pruned || slices.ContainsFunc(all, func(r index.Row) bool {
					return r.ScanID == s.id &&
						r.Table != ""
				}) {
					return fmt.Errorf("scan %s was withdrawn, and readers have it", s.id)
				}
				s.remade, s.hurt, s.withdrawn = false, false, false
			}
			continue
		}
		s.remade, s.hurt = false, false
		parts, err := live(s.id, h.files())
		if err != nil {
			return err
		}
		for _, part := range parts {
			for _, f := range part.Files {
				if slices.Contains(s.tables, f.Table) &&
					!slices.ContainsFunc(all, func(r index.Row) bool { return r.Name == f.Name }) {
					return fmt.Errorf("the index has no %s", f.Name)
				}
			}
		}
	}
	return nil
}

// told compares the ledger's episodes with the rows of the scans: each observation counts once, and the last one is
// known.
func (h *history) told() error {
	ledger, err := led.ReadLedger(context.Background(), h.store())
	if err != nil {
		return err
	}
	for seq, host := range hosts {
		found := map[string]schema.SiteRow{} // by date: of two scans the row that was fetched last
		for _, merged := range ledger.Scans {
			s := h.scans[merged.ScanID]
			var row schema.SiteRow
			if err := json.Unmarshal([]byte(s.rows[fmt.Sprintf("%s/%d", schema.Sites, seq)]), &row); err != nil {
				return fmt.Errorf("scan %s is in the ledger without %s: %w", s.id, host, err)
			}
			if was := found[s.date]; row.FetchedAt >= was.FetchedAt {
				found[s.date] = row
			}
		}
		var nights, gaps int32
		last, class := "", ""
		for _, date := range slices.Sorted(maps.Keys(found)) {
			if found[date].Status == 0 {
				gaps++
				continue
			}
			nights++
			last, class = date, map[int32]string{200: "rules", 404: "none", 403: "refused"}[found[date].Status]
		}
		stories, err := led.Stories(context.Background(), h.store(), host, led.Asked{})
		if err != nil {
			return err
		}
		if len(stories) == 0 && nights == 0 {
			continue
		}
		if len(stories) != 1 {
			return fmt.Errorf("%s has %d stories", host, len(stories))
		}
		for _, e := range stories[0].Episodes {
			nights -= e.Observations
		}
		for _, g := range stories[0].Gaps {
			gaps -= g.Nights
		}
		end := stories[0].Episodes[len(stories[0].Episodes)-1]
		if nights != 0 || gaps != 0 || end.ValidTo.String() != last || end.What.Class != class {
			return fmt.Errorf("the ledger lacks %d observations and %d failures of %s, and ends with %s on %v: want %s on %s",
				nights, gaps, host, end.What.Class, end.ValidTo, class, last)
		}
	}
	return nil
}

// counted compares the statistics of complete scans with their sites.
func (h *history) counted() error {
	files := h.files()
	for _, s := range h.scans {
		if !s.there || !s.complete {
			continue
		}
		blocked := int64(0)
		for seq := range hosts {
			if strings.Contains(s.rows[fmt.Sprintf("%s/%d", schema.Verdicts, seq)], blocksGPTBot) {
				blocked++
			}
		}
		stats, err := rowsOf[schema.TokenStatsRow](files[path.Join(schema.TokenStats, "scan_date="+s.date, "part-"+s.id+
			".parquet")])
		i := slices.IndexFunc(stats, func(r schema.TokenStatsRow) bool {
			return r.Token == "GPTBot" &&
				r.SegmentKind == "all"
		})
		if err != nil || i < 0 || blocked == 0 || stats[i].Full != blocked {
			return fmt.Errorf("of scan %s %d sites block GPTBot, and its statistics say otherwise: %w", s.id, blocked, err)
		}
	}
	return nil
}

// tooLate reports whether a file is of a scan that was killed, and that no command continues any more: the nights up to
// its date were pruned.
func (h *history) tooLate(name string) bool {
	return h.any(func(s *scanState) bool {
		return s.there && !s.complete && s.date <= h.through && strings.Contains(name, s.id)
	})
}

// tidy returns an error for leftovers: temporary names, locks, claims without a record. Leftovers stay if no process
// continues their scan: a discarded scan, a night that was killed before it had a manifest, and a scan that is too late.
func (h *history) tidy() error {
	for name, data := range h.files() {
		if h.any(func(s *scanState) bool {
			return (s.publication == "discarded" || !s.there && !s.pruned) && strings.Contains(name, s.id)
		}) || h.tooLate(name) {
			continue
		}
		if strings.HasPrefix(name, "_nights/") && strings.Contains(name, "/.") {
			continue // drafts of a night's files, which no command removes
		}
		if base := path.Base(name); base[0] == '.' || base == "lock" || data == "" {
			return fmt.Errorf("left: %s, %d bytes", name, len(data))
		}
	}
	return nil
}

// committed returns the sites that the scans have committed.
func (h *history) committed() map[site]bool {
	sites := map[site]bool{}
	for id, s := range h.scans {
		for seq := range hosts {
			if s.begunAnew || s.damaged != "" {
				continue
			}
			sites[site{id, seq}] = s.rows[fmt.Sprintf("%s/%d", schema.Sites, seq)] != ""
		}
	}
	return sites
}

// mostLost is how many fetched sites a scan loses at most: an open part, a part that is being sealed, and the site
// between.
const mostLost = 3

// askedOnce checks that a scan has requested no site that it had committed before. Of the sites that it has requested,
// few are lost if the scan was killed, and none if it was stopped in order.
func (h *history) askedOnce(before map[site]bool, died, told bool) error {
	now, lost := h.committed(), map[string]int{}
	for asked := range h.asked {
		s := h.scans[asked.scan]
		if before[asked] {
			return fmt.Errorf("scan %s had %s, and has asked it again", s.id, hosts[asked.seq])
		}
		if !now[asked] && !s.begunAnew {
			lost[s.id]++
		}
	}
	for id, n := range lost {
		if died && n > mostLost || told {
			return fmt.Errorf("scan %s has asked %d sites, and lost them", id, n)
		}
	}
	return nil
}

// kept checks a command that has succeeded although a call failed: it has left the same files as without the failure.
// Compared are the files that readers rely on, and those that are written once. Parts and the history are compared
// anyway; a later command writes the README.
func (h *history) kept(left map[string]string) error {
	files := h.files()
	for name, data := range left {
		folder, _, _ := strings.Cut(name, "/")
		switch {
		case path.Base(name)[0] == '.' || path.Base(name) == "lock":
		case (folder == "_rejects" || name == views.Name) && files[name] != data:
			return fmt.Errorf("%s has %d bytes of %d", name, len(files[name]), len(data))
		case (schema.IsStatistics(folder) || folder == "_nights") && files[name] == "":
			return fmt.Errorf("%s is not there", name)
		}
	}
	return nil
}
