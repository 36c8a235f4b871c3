package sink

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

const (
	sharedSites = 24 // of the complete scan, in parts of two
	shareSites  = 6  // of each of four shares, and of a single share
)

func shareOptions(i, n int) Options {
	o := crashOptions
	o.Shard, o.Shares, o.PartRows = fmt.Sprint(i), n, 2
	return o
}

// sitesOfShare are the lines of share i of n.
func sitesOfShare(i, n int) (seqs []uint64) {
	for seq := range uint64(n * shareSites) {
		if int(seq)%n == i {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// writeShare writes at most so many missing sites of a share, and leaves it in a state. It returns the written sites.
func writeShare(t *testing.T, dir *store.Dir, o Options, most int, state commit.ShareState) (written []uint64) {
	t.Helper()
	w := mustOpen(t, dir, o)
	rejects, err := commit.OpenShareRejects(t.Context(), dir, o.ScanID, o.Shard)
	if err == nil {
		err = rejects.Add(commit.Reject{Input: "list.txt", Line: 1, Text: "no host", Reason: "a test"})
	}
	if err != nil {
		t.Fatal(err)
	}
	i, n := w.Share()
	for _, seq := range sitesOfShare(i, n) {
		if w.Done(seq) || len(written) == most {
			continue
		}
		if err := w.Add(typicalSite(t, seq)); err != nil {
			t.Fatal(err)
		}
		written = append(written, seq)
	}
	switch state {
	case commit.ShareDone:
		if err := rejects.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		err = w.FinishShare(t.Context(), shareSites, commit.ShareResult{Rejects: rejects.File()})
	case commit.ShareInterrupted:
		if err = w.Close(t.Context()); err == nil {
			err = w.LeaveShare(t.Context(), state, "a signal")
		}
	default:
		err = w.Close(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if err := rejects.Discard(); err != nil {
		t.Fatal(err)
	}
	return written
}

// collectShares makes one scan of the shares.
func collectShares(t *testing.T, dir *store.Dir) error {
	t.Helper()
	c, err := OpenCollection(t.Context(), dir, crashOptions.ScanID)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range c.Manifest.Shares {
		if s := c.Shares[i]; s == nil || s.State != commit.ShareDone {
			return fmt.Errorf("share %d is not done: %+v", i, s)
		}
	}
	if err := c.Gather(t.Context()); err != nil {
		return err
	}
	if err := errors.Join(c.Complete(t.Context(), nil, commit.PublicationDone), index.Update(t.Context(), dir)); err != nil {
		return err
	}
	return c.Clean(t.Context())
}

// shareLoss is a way in which a share of three parts loses data.
type shareLoss struct {
	name   string
	lost   []int // numbers of the parts that are lost
	silent bool  // a continued share does not notice it, since it only checks sizes
	record bool  // the share's record is lost, and nothing else
	of     func(shard string) string
	damage func(t *testing.T, path string)
}

func shareLosses() []shareLoss {
	removed := func(t *testing.T, path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	cut := func(t *testing.T, path string) {
		if err := os.Truncate(path, 100); err != nil {
			t.Fatal(err)
		}
	}
	flipped := func(t *testing.T, path string) { flip(t, path, 90) }
	record := func(n int) func(string) string {
		return func(shard string) string { return commit.RecordName(crashOptions.ScanID, shard, n) }
	}
	share := func(shard string) string { return commit.ShareName(crashOptions.ScanID, shard) }
	all := []shareLoss{
		{"first record deleted", []int{0}, false, false, record(0), removed},
		{"first record flipped", []int{0}, false, false, record(0), flipped},
		{"first record cut", []int{0}, false, false, record(0), cut},
		{"last record deleted", []int{2}, false, false, record(2), removed},
		{"last record flipped", []int{2}, false, false, record(2), flipped},
		{"share deleted", nil, false, true, share, removed},
		{"share flipped", nil, false, true, share, flipped},
		{"share cut", nil, false, true, share, cut},
	}
	for _, table := range schema.AllTables {
		part := func(shard string) string {
			return commit.PartName(table, crashOptions.Date, crashOptions.ScanID, shard, 1)
		}
		all = append(all,
			shareLoss{table + " deleted", []int{1}, false, false, part, removed},
			shareLoss{table + " cut", []int{1}, false, false, part, cut},
			shareLoss{table + " flipped", []int{1}, true, false, part, flipped})
	}
	return all
}

// checkShareRemedy checks the remedy in an error of a damaged share: it must not destroy data.
func checkShareRemedy(t *testing.T, what string, err error, i, n int) {
	t.Helper()
	if err == nil || !strings.HasSuffix(err.Error(),
		fmt.Sprintf("bulkscan scan LIST -o OUT --scan-id crash-1 --shard %d/%d --repair", i, n)) ||
		strings.Contains(err.Error(), "restart") || strings.Contains(err.Error(), "scan anew") {
		t.Errorf("%s: %v", what, err)
	}
	checkLoss(t, what, err)
}

// checkLoss checks that an error says that commits, files or records are lost or damaged, which has an exit code of its
// own.
func checkLoss(t *testing.T, what string, err error) {
	t.Helper()
	if _, lost := errors.AsType[*commit.LostError](err); !lost && !errors.Is(err, commit.ErrRecord) {
		t.Errorf("%s: %v is no damage", what, err)
	}
}

// TestShareOfOthers replaces the record of a share by one of a scan with another number of shares. A repair writes it
// anew.
func TestShareOfOthers(t *testing.T) {
	dir, o := newDir(t), shareOptions(0, 2)
	writeShare(t, dir, o, shareSites, commit.ShareDone)
	s, err := commit.ReadShareRecord(t.Context(), dir, o.ScanID, o.Shard)
	if err != nil {
		t.Fatal(err)
	}
	s.N = 9
	if err := s.Write(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	_, err = Look(t.Context(), dir, o)
	checkShareRemedy(t, "look", err, 0, 2)
	_, err = Open(t.Context(), dir, o)
	checkShareRemedy(t, "open", err, 0, 2)
	o.Repair = true
	writeShare(t, dir, o, shareSites, commit.ShareDone)
	if s, err = commit.ReadShareRecord(t.Context(), dir, o.ScanID, o.Shard); err != nil || s.N != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestShareRepair loses data of a share in every way and state. A repair fetches the lost sites alone, and no other
// share changes; then the shares are collected. Until then each error names the repair of that share.
func TestShareRepair(t *testing.T) {
	turn := 0 // in short mode each loss occurs in one state
	for _, n := range []int{1, 2} {
		for _, state := range []commit.ShareState{commit.ShareRunning, commit.ShareInterrupted, commit.ShareDone} {
			losses := shareLosses()
			if state == commit.ShareDone {
				rejects := func(shard string) string { return commit.ShareRejectsName(crashOptions.ScanID, shard) }
				losses = append(losses, shareLoss{"rejects deleted", nil, true, false, rejects, losses[0].damage},
					shareLoss{"rejects flipped", nil, true, false, rejects, func(t *testing.T, path string) { flip(t, path, 9) }})
			}
			for _, loss := range losses {
				if turn++; testing.Short() && turn%5 > 0 {
					continue
				}
				t.Run(fmt.Sprintf("%d %s %s", n, state, loss.name), func(t *testing.T) {
					t.Parallel()
					testShareRepair(t, n, state, loss)
				})
			}
		}
	}
}

func testShareRepair(t *testing.T, n int, state commit.ShareState, loss shareLoss) {
	dir := newDir(t)
	i := n - 1
	for k := range n {
		switch k {
		case i:
			most := shareSites
			if loss.of(fmt.Sprint(i)) != commit.RecordName(crashOptions.ScanID, fmt.Sprint(i), 2) && state != commit.ShareDone {
				most = shareSites - 1 // one is left to fetch
			}
			writeShare(t, dir, shareOptions(k, n), most, state)
		default:
			writeShare(t, dir, shareOptions(k, n), shareSites, commit.ShareDone)
		}
	}
	name := loss.of(fmt.Sprint(i))
	loss.damage(t, filepath.Join(dir.Root(), name))
	others := func() map[string]string {
		all := objects(t, dir)
		for name := range all {
			if strings.Contains(name, fmt.Sprintf("crash-1-%d-", i)) || strings.Contains(name, fmt.Sprintf("commits/%d-", i)) ||
				strings.Contains(name, fmt.Sprintf("shares/%d.", i)) || name == "views.sql" {
				delete(all, name)
			}
		}
		return all
	}
	before := others()

	// A share that is not repaired is not collected, and continuing a share does not hide the loss.
	err := collectShares(t, dir)
	gone := strings.HasSuffix(loss.name, "deleted") && loss.record
	if state == commit.ShareDone && !gone && !(loss.silent && loss.name != "rejects deleted" &&
		loss.name != "rejects flipped") && !loss.record {
		checkShareRemedy(t, "collect", err, i, n)
	}
	if loss.record && err == nil {
		t.Error("it was collected without the record of a share")
	}
	// no later record shows the loss: an incomplete scan fetches sites without a commit
	absorbed := loss.name == "last record deleted"
	if !gone && !loss.silent && !absorbed && (state != commit.ShareDone || loss.record) {
		_, err := Look(t.Context(), dir, shareOptions(i, n))
		checkShareRemedy(t, "look", err, i, n)
		_, err = Open(t.Context(), dir, shareOptions(i, n))
		checkShareRemedy(t, "open", err, i, n)
	}
	if state == commit.ShareDone && loss.silent && err == nil {
		// the scan was collected: readers find the damage of bytes
		collectedRepair(t, dir, n)
		return
	}

	repair := shareOptions(i, n)
	repair.Repair = true
	var want []uint64
	for at, seq := range sitesOfShare(i, n) {
		if slices.Contains(loss.lost, at/2) || state != commit.ShareDone && at == shareSites-1 {
			want = append(want, seq)
		}
	}
	if state != commit.ShareDone && slices.Equal(loss.lost, []int{2}) {
		want = sitesOfShare(i, n)[4:]
	}
	w := mustOpen(t, dir, repair) // and is killed
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if err := collectShares(t, dir); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("share %d is not done", i)) {
		t.Errorf("collected during the repair: %v", err)
	}
	if got := writeShare(t, dir, repair, sharedSites, commit.ShareDone); !slices.Equal(got, want) {
		t.Errorf("the repair fetches %v, want %v", got, want)
	}
	if after := others(); !reflect.DeepEqual(after, before) {
		t.Error("another share has changed")
	}
	if _, err := Open(t.Context(), dir, repair); err == nil ||
		err.Error() != fmt.Sprintf("share %d/%d of scan crash-1 is done", i, n) {
		t.Errorf("repaired once more: %v", err)
	}
	if err := collectShares(t, dir); err != nil {
		t.Fatal(err)
	}
	checkCollected(t, dir, n)
	if _, err := Open(t.Context(), dir, repair); err == nil || !strings.HasSuffix(err.Error(),
		"give --repair without --shard") {
		t.Errorf("repaired after collecting: %v", err)
	}
}

// collectedRepair repairs a collected scan like any other scan.
func collectedRepair(t *testing.T, dir *store.Dir, n int) {
	t.Helper()
	o := repairOptions()
	w := mustOpen(t, dir, o)
	for seq := range uint64(n * shareSites) {
		if w.Done(seq) {
			continue
		}
		if err := w.Add(typicalSite(t, seq)); err != nil {
			t.Fatal(err)
		}
	}
	if err := completeListed(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkCollected(t, dir, n)
}

// checkCollected checks that the scan has each site once, and no damage.
func checkCollected(t *testing.T, dir *store.Dir, n int) {
	t.Helper()
	if lines, v := findings(t, dir); len(lines) > 0 || v.Files == 0 {
		t.Errorf("%q", lines)
	}
	scan := mustReadScan(t, dir, crashOptions.ScanID)
	var seqs []int64
	for _, row := range collect[schema.SiteRow](t, scan, schema.Sites) {
		seqs = append(seqs, row.Seq)
	}
	slices.Sort(seqs)
	if m := scan.Manifest; len(slices.Compact(seqs)) != n*shareSites || m.State != commit.Complete ||
		m.Counts.Rows != int64(len(seqs)) || m.Counts.Files[schema.Sites] != int64(len(seqs)) {
		t.Errorf("%d sites, %+v", len(seqs), m.Counts)
	}
}

// TestCollectedRepair loses data of a collected scan, which is then repaired like any other scan.
func TestCollectedRepair(t *testing.T) {
	for _, n := range []int{1, 2} {
		for i, loss := range shareLosses() {
			if testing.Short() && i%2 != n%2 {
				continue
			}
			t.Run(fmt.Sprintf("%d %s", n, loss.name), func(t *testing.T) {
				t.Parallel()
				dir := newDir(t)
				for i := range n {
					writeShare(t, dir, shareOptions(i, n), shareSites, commit.ShareDone)
				}
				if err := collectShares(t, dir); err != nil {
					t.Fatal(err)
				}
				loss.damage(t, filepath.Join(dir.Root(), loss.of(fmt.Sprint(n-1))))
				if loss.name == "share deleted" { // it is not needed any more
					checkCollected(t, dir, n)
					return
				}
				collectedRepair(t, dir, n)
				if _, err := Open(t.Context(), dir, repairOptions()); !isIntact(err) {
					t.Errorf("once more: %v", err)
				}
			})
		}
	}
}

// TestOtherVersions shows which versions may continue with a scan or a share that another one has begun: those that
// make the same rows.
func TestOtherVersions(t *testing.T) {
	for _, o := range []Options{crashOptions, shareOptions(0, 2)} {
		f := func(want string, change func(m *commit.Manifest)) {
			t.Helper()
			dir := newDir(t)
			o := o
			o.ToolVersion = "1.2.3"
			if err := mustOpen(t, dir, o).Abort(); err != nil {
				t.Fatal(err)
			}
			m, err := commit.ReadManifest(t.Context(), dir, o.ScanID)
			if err == nil {
				change(m)
				err = m.Write(t.Context(), dir)
			}
			if err != nil {
				t.Fatal(err)
			}
			before := objects(t, dir)
			_, err = Look(t.Context(), dir, o)
			for range 2 {
				if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("shares %d: error %v, want %q", o.Shares, err, want)
				}
				var w *Writer
				if w, err = Open(t.Context(), dir, o); err == nil {
					if err := w.Abort(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if want != "" && !reflect.DeepEqual(before, objects(t, dir)) {
				t.Errorf("shares %d: %s: something has changed", o.Shares, want)
			}
		}
		f("", func(*commit.Manifest) {})
		f("", func(m *commit.Manifest) { m.ToolVersion = "1.2.2" })
		f(fmt.Sprintf("schema version %d", schema.Version+1), func(m *commit.Manifest) { m.SchemaVersion++ })
		f(fmt.Sprintf("schema version %d", schema.Version-1), func(m *commit.Manifest) { m.SchemaVersion-- })
		f(`the token registry was "other"`, func(m *commit.Manifest) { m.RegistryVersion = "other" })
		f("let the bulkscan that began it finish it", func(m *commit.Manifest) { m.Check.Reading++ })
		f("the check was", func(m *commit.Manifest) { m.Check.Version = "9" })
		f("the check was", func(m *commit.Manifest) { m.Check.Suite = "9" })
		f("the check was", func(m *commit.Manifest) { m.Check.ID = "9" })
	}
	// The manifest names every version.
	dir := newDir(t)
	for i, version := range []string{"1.2.3", "1.2.4", "1.2.3", "1.2.5"} {
		o := shareOptions(i, 4)
		o.ToolVersion = version
		writeShare(t, dir, o, shareSites, commit.ShareDone)
	}
	if err := collectShares(t, dir); err != nil {
		t.Fatal(err)
	}
	if m := mustReadScan(t, dir, crashOptions.ScanID).Manifest; m.ToolVersion != "1.2.3" || !slices.Equal(m.OtherTools,
		[]string{"1.2.4", "1.2.5"}) {
		t.Errorf("it is by %q and %q", m.ToolVersion, m.OtherTools)
	}
}
