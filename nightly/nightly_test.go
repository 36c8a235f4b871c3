package nightly

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/bubble"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

// team is a dataset with a list and a web, whose nights a test runs.
type team struct {
	*testing.T
	store store.Store
	list  string // path
	sites int
	now   time.Time
	asked int // sites, in all nights

	keep   Keep
	status func(site int) int // of tonight's answers; 0 for a name that does not resolve
	fails  error              // of tonight's scan, after half of the sites
	told   []string
	out    io.Writer // of the log
}

func newTeam(t *testing.T) *team {
	t.Helper()
	return teamOn(t, storetest.NewDisk())
}

func teamOn(t *testing.T, disk *storetest.Disk) *team {
	t.Helper()
	dir, err := store.NewDirOn(disk, "/data/out")
	if err != nil {
		t.Fatal(err)
	}
	m := &team{T: t, store: dir, list: filepath.Join(t.TempDir(), "hosts.txt"), out: io.Discard,
		now: time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC)}
	m.calm(200)
	return m
}

// calm makes all sites answer, and the list have so many.
func (m *team) calm(sites int) {
	m.sites, m.fails, m.status = sites, nil, func(int) int { return 200 }
	var text strings.Builder
	for i := range sites {
		fmt.Fprintf(&text, "h%d.test\n", i)
	}
	if err := os.WriteFile(m.list, []byte(text.String()), 0o666); err != nil {
		m.Fatal(err)
	}
}

func (m *team) options() Options {
	log := slog.New(slog.NewTextHandler(m.out, nil))
	return Options{
		Store: m.store, Keep: m.keep, Now: func() time.Time { return m.now }, Scan: m.scan, Log: log,
		List: ListOptions{Source: m.list, Least: 0.5, Count: func(_ context.Context, path string) (int64, error) {
			data, err := os.ReadFile(path)
			return int64(strings.Count(string(data), "\n")), err
		}},
		Publishing: scan.Publishing{Compact: true, Registry: tokens.Default(), Log: slog.New(slog.DiscardHandler)},
		Report:     survey.Options{Registry: tokens.Default(), Log: slog.New(slog.DiscardHandler)},
		Tell:       func(_ context.Context, n *Night) { m.told = append(m.told, n.Message()) },
	}
}

// scan writes what the web answers tonight, by the sink that every scan uses.
func (m *team) scan(ctx context.Context, s Scan) error {
	w, err := sink.Open(ctx, m.store, sink.Options{ScanID: s.ScanID, Date: s.Date, PartRows: 64, NoPublish: true,
		Registry: tokens.Default()})
	if err != nil {
		return err
	}
	data, err := os.ReadFile(s.List)
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	for i, line := range strings.Fields(string(data)) {
		if m.fails != nil && i == m.sites/2 {
			return errors.Join(m.fails, w.Close(ctx))
		}
		if w.Done(uint64(i)) {
			continue
		}
		m.asked++
		if err := w.Add(siteOf(i, line, m.status(i))); err != nil {
			return errors.Join(err, w.Abort())
		}
	}
	return errors.Join(w.Flush(ctx), stats.Write(ctx, m.store, s.ScanID, survey.Options{Registry: tokens.Default(),
		Log: slog.New(slog.DiscardHandler)}), w.Complete(ctx), w.Close(ctx))
}

func siteOf(i int, host string, status int) *audit.Site {
	from, err := origin.Parse(host)
	if err != nil {
		panic(err)
	}
	site := &audit.Site{Seq: uint64(i), Input: host, Origin: from, Fetch: exchange.Response{Outcome: exchange.Answered,
		Status: status}}
	if i%2 == 0 {
		site.Fetch.Fields.CDN = "cloudflare"
	}
	switch status {
	case 0:
		site.Fetch.Outcome = exchange.DNSTimeout
	case 200:
		site.Fetch.Body = []byte("User-agent: GPTBot\nDisallow: /\n")
	}
	audit.Judge(site)
	return site
}

// night runs the next night, and returns its record.
func (m *team) night() *Night {
	m.Helper()
	n, err := Run(m.Context(), m.options())
	if err != nil {
		m.Fatalf("the night of %s: %v", m.now, err)
	}
	m.now = m.now.AddDate(0, 0, 1)
	return n
}

// ledger returns the scans that the history has, by date.
func (m *team) ledger() (scans string) {
	m.Helper()
	l, err := history.ReadLedger(m.Context(), m.store)
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		m.Fatal(err)
	}
	if l != nil {
		for _, s := range l.Scans {
			scans += s.ScanDate[8:] + " "
		}
	}
	return strings.TrimSpace(scans)
}

// sound checks that the dataset is what its records say, and that nothing is left over.
func (m *team) sound(at string) {
	m.Helper()
	found := func(f verify.Finding) { m.Errorf("%s: %v", at, f) }
	_, err := verify.Dataset(m.Context(), m.store, verify.Options{Report: found})
	if err := errors.Join(err, history.Verify(m.Context(), m.store, found), Verify(m.Context(), m.store,
		found)); err != nil {
		m.Fatal(err)
	}
	if state, err := index.Check(m.Context(), m.store); err != nil || state != index.Current {
		m.Errorf("%s: the index is %v, %v", at, state, err)
	}
}

func (m *team) read(name string) string {
	m.Helper()
	data, err := store.ReadAll(m.Context(), m.store, name, 1<<24)
	if err != nil {
		m.Fatal(err)
	}
	return string(data)
}

// TestRepeatedNight fetches some sites again after each night, and all fail. The pages of a night stay as they are. The
// next night is judged by the nights, not by the repetitions.
func TestRepeatedNight(t *testing.T) {
	m := newTeam(t)
	figures := func(date string) string {
		return regexp.MustCompile(`(?s)"rows".*"blocking"`).FindString(m.read("_nights/" + date + "/summary.json"))
	}
	for range 4 {
		date := m.now.Format(time.DateOnly)
		n := m.night()
		if n.State != Published || n.Changes != nil && n.Changes.Changed != 0 {
			t.Fatalf("%+v", n)
		}
		before := figures(date)
		for _, id := range []string{"again-" + date, "once-more-" + date} {
			w, err := sink.Open(t.Context(), m.store, sink.Options{ScanID: id, Date: date, Registry: tokens.Default()})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				if err := w.Add(siteOf(i, fmt.Sprintf("h%d.test", i), 0)); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(w.Complete(t.Context()), w.Close(t.Context()), scan.Publish(t.Context(), m.store, id,
				m.options().Publishing)); err != nil {
				t.Fatal(err)
			}
		}
		o := m.options()
		o.Date = date
		if _, err := Release(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if after := figures(date); after != before || !strings.Contains(m.read("_nights/"+date+"/summary.json"),
			`"replaced": 40`) {
			t.Errorf("%s: the figures are\n%s\nand were\n%s", date, after, before)
		}
	}
	m.sound("repeated")
}

// TestNights runs a fortnight as a scheduler does, with many failures.
func TestNights(t *testing.T) {
	m := newTeam(t)
	for range 4 {
		if n := m.night(); n.State != Published || n.Figures.Sites != 200 || n.Figures.Blocked != 200 || len(n.Files) == 0 {
			t.Fatalf("a calm night: %+v", n)
		}
	}
	m.sound("four nights")
	if got := m.ledger(); got != "01 02 03 04" {
		t.Errorf("the ledger has %s", got)
	}
	if latest := m.read(LatestSummary); latest != m.read("_nights/2026-11-04/summary.json") ||
		!strings.Contains(latest, `"2026-11-04"`) {
		t.Errorf("the latest summary is %s", latest)
	}
	if !strings.Contains(m.read(LatestReport), "<html") {
		t.Error("no report page")
	}

	// A network refuses us for one night.
	m.status = func(site int) int {
		if site%2 == 0 {
			return 403
		}
		return 200
	}
	n := m.night()
	if n.State != Held || n.Out[0].Figure != "finding.refused" {
		t.Fatalf("a network refuses: %+v", n)
	}
	if want := "bulkscan nightly --release 2026-11-05 publishes it; --discard 2026-11-05 does not"; !strings.Contains(
		m.told[4], want) || strings.Count(m.told[4], "\n") > 20 {
		t.Errorf("told: %s", m.told[4])
	}
	m.sound("held")
	m.calm(200)
	if n := m.night(); n.State != Published || n.Changes.From != "2026-11-04" || n.Changes.Changed != 0 {
		t.Fatalf("the night after it: %+v", n)
	}
	if got := m.ledger(); got != "01 02 03 04 06" {
		t.Errorf("the ledger has %s", got)
	}

	// Name servers are dead; the list is empty, and then too short.
	m.status = func(int) int { return 0 }
	if n := m.night(); n.State != Held || n.Figures.DNSFailed != 200 {
		t.Fatalf("no name resolves: %+v", n)
	}
	for _, sites := range []int{0, 99} {
		m.calm(sites)
		n, err := Run(t.Context(), m.options())
		if _, ok := errors.AsType[*ListError](err); !ok || n.State != Failed {
			t.Fatalf("a list of %d: %+v, %v", sites, n, err)
		}
	}
	m.calm(200)
	asked := m.asked
	if n := m.night(); n.State != Published || n.Runs != 3 || m.asked != asked+200 { // the same night, with a list
		t.Fatalf("the list is there again: %+v", n)
	}

	// The deadline comes; the day after is another night, and the unfinished one stays unfinished.
	m.fails = fmt.Errorf("stopped: %w", ErrDeadline)
	if n := m.night(); n.State != Incomplete {
		t.Fatalf("the deadline: %+v", n)
	}
	m.calm(200)
	if n := m.night(); n.State != Published || n.Date != "2026-11-10" {
		t.Fatalf("after the deadline: %+v", n)
	}
	if got := m.ledger(); got != "01 02 03 04 06 08 10" {
		t.Errorf("the ledger has %s", got)
	}
	m.calm(250) // the list has grown
	if n := m.night(); n.State != Published || n.Changes.Appeared != 50 {
		t.Fatalf("the list has grown: %+v", n)
	}

	// The same night again changes nothing, and one before it is refused.
	m.now = m.now.AddDate(0, 0, -1).Add(time.Hour)
	asked = m.asked
	if n := m.night(); n.State != Published || n.Runs != 1 || m.asked != asked {
		t.Errorf("again: %+v", n)
	}
	m.now = m.now.AddDate(0, 0, -7)
	if n, err := Run(t.Context(), m.options()); err == nil || !strings.Contains(err.Error(), "the clock is wrong") {
		t.Errorf("the clock steps back: %+v, %v", n, err)
	}
	m.sound("at the end")

	// A person decides.
	decide := func(do func(context.Context, Options) (*Night, error), date string, want State, ledger string) {
		t.Helper()
		o := m.options()
		o.Date = date
		for range 2 {
			if n, err := do(t.Context(), o); err != nil || n.State != want {
				t.Fatalf("%s: %+v, %v", date, n, err)
			}
		}
		if got := m.ledger(); got != ledger {
			t.Errorf("%s is %s: the ledger has %s", date, want, got)
		}
		m.sound(date)
	}
	decide(Discard, "2026-11-07", Discarded, "01 02 03 04 06 08 10 11")
	decide(Release, "2026-11-05", Published, "01 02 03 04 05 06 08 10 11")
	if latest := m.read(LatestSummary); !strings.Contains(latest, `"2026-11-11"`) {
		t.Errorf("the latest summary is %.300s", latest)
	}
	o := m.options()
	o.Date = "2026-11-06"
	if n, err := Discard(t.Context(), o); err == nil {
		t.Errorf("a published night is discarded: %+v", n)
	}
	o.Date = "2026-12-24"
	if _, err := Release(t.Context(), o); err == nil || err.Error() != "there is no night of 2026-12-24" {
		t.Errorf("no such night: %v", err)
	}
}

// TestLeftNight shows which night a run continues.
func TestLeftNight(t *testing.T) {
	disk := storetest.NewDisk()
	first := teamOn(t, disk)
	first.night()
	f := func(name, until, given string, fails error, later time.Duration, date string, was State) {
		t.Helper()
		disk = disk.Restart(storetest.Nothing)
		m := teamOn(t, disk.Restart(storetest.Nothing))
		m.now = first.now
		o := m.options()
		if until != "" {
			o.Until = func(begun time.Time) time.Time { return begun.Add(4 * time.Hour) }
		}
		m.fails = fails
		if _, err := Run(t.Context(), o); (err != nil) != !errors.Is(fails, ErrDeadline) {
			t.Fatal(err)
		}
		m.calm(m.sites)
		m.now = m.now.Add(later)
		want := Published
		if date == "2026-11-02" {
			want = was
		}
		if until == "moved" {
			o.Until = func(begun time.Time) time.Time { return begun.Add(12 * time.Hour) }
		}
		o.Date = given
		n, err := Run(t.Context(), o)
		if err != nil || n.Date != date || n.State != want {
			t.Errorf("%s: continued is %+v, %v", name, n, err)
		}
		if left, err := ReadNight(t.Context(), m.store, "2026-11-02"); err != nil || left.State != was {
			t.Errorf("%s: the night is %+v, %v", name, left, err)
		}
	}
	interrupted, full := fmt.Errorf("signal: %w", ErrInterrupted), errors.New("no space left")
	f("soon after", "", "", interrupted, time.Hour, "2026-11-02", Published)
	f("past midnight, without a deadline", "", "", interrupted, 19*time.Hour+59*time.Minute, "2026-11-02", Published)
	f("soon after, with its date given", "", "2026-11-02", interrupted, time.Hour, "2026-11-02", Published)
	f("soon after, with another date given", "", "2026-11-03", interrupted, time.Hour, "2026-11-03", Incomplete)
	f("the next night", "", "", interrupted, 24*time.Hour, "2026-11-03", Incomplete)
	f("before the deadline", "06:00", "", interrupted, 3*time.Hour, "2026-11-02", Published)
	f("the next night, after the deadline", "06:00", "", interrupted, 24*time.Hour, "2026-11-03", Incomplete)
	f("the same date, after the deadline", "06:00", "", interrupted, 8*time.Hour, "2026-11-02", Incomplete)
	f("the same date, with a later deadline", "moved", "", interrupted, 8*time.Hour, "2026-11-02", Published)
	f("a full disk, the same date", "", "", full, time.Hour, "2026-11-02", Published)
	f("a full disk, the next night", "", "", full, 24*time.Hour, "2026-11-03", Failed)
	f("the deadline, and again on the same date", "06:00", "", fmt.Errorf("x: %w", ErrDeadline), 5*time.Hour, "2026-11-02",
		Incomplete)
	f("the deadline, and again with a later one", "moved", "", fmt.Errorf("x: %w", ErrDeadline), 5*time.Hour, "2026-11-02",
		Published)
	f("the deadline, and the next night", "06:00", "", fmt.Errorf("x: %w", ErrDeadline), 24*time.Hour, "2026-11-03",
		Incomplete)
}

// TestOverlap shows that a run that meets another one ends at once, and names it.
func TestOverlap(t *testing.T) {
	m := newTeam(t)
	o := m.options()
	o.Scan = func(ctx context.Context, s Scan) error {
		_, err := Run(ctx, m.options())
		running, ok := errors.AsType[*RunningError](err)
		if !ok || running.Holder.PID != os.Getpid() {
			t.Errorf("a second run: %v", err)
		}
		return m.scan(ctx, s)
	}
	if n, err := Run(t.Context(), o); err != nil || n.State != Published {
		t.Fatalf("%+v, %v", n, err)
	}
}

// TestDamaged shows that a night with damaged files is not published.
func TestDamaged(t *testing.T) {
	m := newTeam(t)
	o := m.options()
	o.Scan = func(ctx context.Context, s Scan) error {
		err := m.scan(ctx, s)
		scan, errRead := commit.ReadScan(ctx, m.store, s.ScanID)
		if err := errors.Join(err, errRead); err != nil {
			return err
		}
		name := scan.Commits[0].Files[len(scan.Commits[0].Files)-1].Name
		return m.store.Put(ctx, name, append([]byte(m.read(name)), 0))
	}
	n, err := Run(t.Context(), o)
	if err == nil || n.State != Failed || m.ledger() != "" {
		t.Errorf("%+v, %v; the ledger has %q", n, err, m.ledger())
	}
}

// TestRemedyOfADamagedNight shows that no error of a night advises a command that would publish it unjudged. A repair
// of its scan, which knows nothing of nights, leaves the judgement to the next run.
func TestRemedyOfADamagedNight(t *testing.T) {
	f := func(what string, damage func(m *team, scanID string) error) {
		t.Helper()
		m := newTeam(t)
		m.fails = fmt.Errorf("%w: %w", ErrInterrupted, context.Canceled)
		if _, err := Run(t.Context(), m.options()); !errors.Is(err, ErrInterrupted) {
			t.Fatal(err)
		}
		m.fails = nil
		scanID := "night-2026-11-01"
		if err := damage(m, scanID); err != nil {
			t.Fatal(err)
		}
		n, err := Run(t.Context(), m.options())
		if err == nil || n.State != Failed {
			t.Errorf("%s: the night is %s, %v", what, n.State, err)
			return
		}
		for _, text := range []string{err.Error(), n.Error, m.told[len(m.told)-1]} {
			if strings.Contains(text, "--repair") || strings.Contains(text, "--restart") ||
				!strings.Contains(text, "--discard 2026-11-01") {
				t.Errorf("%s: it says %s", what, text)
			}
		}
	}
	first := func(m *team, scanID string) (string, error) {
		scan, err := commit.ReadScan(t.Context(), m.store, scanID)
		if err != nil {
			return "", err
		}
		return scan.Commits[0].Files[0].Name, nil
	}
	f("a lost file", func(m *team, scanID string) error {
		name, err := first(m, scanID)
		return errors.Join(err, m.store.Delete(t.Context(), name))
	})
	f("a file of another size", func(m *team, scanID string) error {
		name, err := first(m, scanID)
		return errors.Join(err, m.store.Put(t.Context(), name, []byte("PAR1")))
	})
	f("a damaged record", func(m *team, scanID string) error {
		return m.store.Put(t.Context(), commit.RecordName(scanID, "0", 0), []byte("{}"))
	})
	f("a lost record", func(m *team, scanID string) error {
		return m.store.Delete(t.Context(), commit.RecordName(scanID, "0", 0))
	})
	f("a lost manifest", func(m *team, scanID string) error {
		return m.store.Delete(t.Context(), commit.ManifestName(scanID))
	})
	f("a damaged manifest", func(m *team, scanID string) error {
		return m.store.Put(t.Context(), commit.ManifestName(scanID), []byte("{}"))
	})
	f("another setting", func(m *team, scanID string) error {
		manifest, err := commit.ReadManifest(t.Context(), m.store, scanID)
		if err != nil {
			return err
		}
		manifest.Tables = []string{"sites"}
		return manifest.Write(t.Context(), m.store)
	})

	m := newTeam(t)
	m.fails = fmt.Errorf("%w: %w", ErrInterrupted, context.Canceled)
	if _, err := Run(t.Context(), m.options()); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	name, err := first(m, "night-2026-11-01")
	if err := errors.Join(err, m.store.Delete(t.Context(), name)); err != nil {
		t.Fatal(err)
	}
	w, err := sink.Open(t.Context(), m.store, sink.Options{ScanID: "night-2026-11-01", Repair: true,
		Registry: tokens.Default()})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Complete(t.Context()), w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if scan, err := commit.ReadManifest(t.Context(), m.store, "night-2026-11-01"); err != nil ||
		scan.Publication != commit.PublicationPending {
		t.Errorf("after a repair the night's scan is %+v, %v", scan, err)
	}
}

// TestFetchedList shows how lists from a server are taken.
func TestFetchedList(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "h0.test\nh1.test\n") }
	handler := answer
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler(w, r) }))
	defer server.Close()
	plain := httptest.NewServer(http.HandlerFunc(answer))
	defer plain.Close()
	f := func(name string, h http.HandlerFunc, want string) {
		t.Helper()
		handler = h
		m := newTeam(t)
		m.now = time.Now()
		o := m.options()
		o.List.Source, o.List.Client = strings.Replace(server.URL, "https://", "https://user:secret@", 1)+
			"/top.txt?key=secret", server.Client()
		sum, err := o.get(t.Context(), filepath.Join(t.TempDir(), "list"))
		switch {
		case want == "" && (err != nil || len(sum) != 64):
			t.Errorf("%s: %v", name, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	f("a list", answer, "")
	f("an error page", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, "status 404")
	f("it breaks off", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "h0.test\n")
	}, "unexpected EOF")
	f("a redirect to http", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL, http.StatusFound)
	}, "another scheme than https")
	if got, want := shown("https://user:secret@example.org/top.csv.zip?key=secret"),
		"https://example.org/top.csv.zip"; got != want {
		t.Errorf("shown: %s", got)
	}
	if got, want := listName("https://example.org/a%20b/top-1m.csv.zip?x=y"), "list-top-1m.csv.zip"; got != want {
		t.Errorf("named: %s", got)
	}
}

// TestTell shows that a failing webhook is called again a few times, and that no message names it.
func TestTell(t *testing.T) {
	f := func(want int, answers ...int) {
		t.Helper()
		bubble.Test(t, func(t *testing.T) {
			var log strings.Builder
			got, texts := 0, []string{}
			client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				status := answers[min(got, len(answers)-1)]
				got++
				var body struct{ Text string }
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
					t.Error(err)
				}
				texts = append(texts, body.Text)
				if status == 0 {
					return nil, errors.New("connection refused")
				}
				return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("ok"))}, nil
			})}
			w := &Webhook{URL: "https://hooks.example/secret", Client: client, Log: slog.New(slog.NewTextHandler(&log, nil))}
			w.Tell(t.Context(), &Night{Date: "2026-11-01", State: Held, Figures: figuresOf(100, nil)})
			if got != want || !strings.HasPrefix(texts[0], "bulkscan: the night of 2026-11-01 is held\n100 sites") {
				t.Errorf("%v: told %d times, want %d: %q", answers, got, want, texts)
			}
			if failed := answers[min(got, len(answers))-1] != 200; failed != (log.Len() > 0) || strings.Contains(log.String(),
				"secret") {
				t.Errorf("%v: logged %q", answers, log.String())
			}
		})
	}
	f(1, 200)
	f(2, 503, 200)
	f(3, 0, 429, 200)
	f(4, 500)
	f(4, 0)
	f(1, 404)
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestNightsAmongOthers shows that a person's file is no night, and that a folder in the place of a record is an error.
func TestNightsAmongOthers(t *testing.T) {
	st, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, date := range []string{"2026-11-20", "2026-11-21"} {
		if err := (&Night{Date: date}).write(t.Context(), st); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"_nights/2026-11-22/notes.txt", "_nights/notes/night.json",
		"_nights/2026-11-19/more/night.json"} {
		if err := st.Put(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	for most, want := range []int{2, 1, 2, 2} {
		if nights, err := Nights(t.Context(), st, most); err != nil || len(nights) != want ||
			nights[want-1].Date != "2026-11-21" || nights[0].Date > nights[want-1].Date {
			t.Errorf("at most %d: %d, %v", most, len(nights), err)
		}
	}
	if err := os.Mkdir(filepath.Join(st.Root(), "_nights", "2026-11-22", "night.json"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Nights(t.Context(), st, 1); err == nil || !strings.Contains(err.Error(), "night.json is a folder") {
		t.Errorf("a folder in the place of a record: %v", err)
	}
}

// TestListIsRemoved shows that a night removes its copy of the list, also when it is interrupted.
func TestListIsRemoved(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("TMP", temporary)
	f := func(name string, end func(cancel func()) error) {
		t.Helper()
		m := newTeam(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o, scanned := m.options(), false
		o.Scan = func(_ context.Context, s Scan) error {
			if _, err := os.Stat(s.List); err != nil || filepath.Dir(filepath.Dir(s.List)) != temporary {
				t.Errorf("%s: the list is at %s, %v", name, s.List, err)
			}
			scanned = true
			return end(cancel)
		}
		if _, err := Run(ctx, o); err == nil || !scanned {
			t.Errorf("%s: %v, scanned %v", name, err, scanned)
		}
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			t.Errorf("%s: left are %v, %v", name, left, err)
		}
	}
	f("failed", func(func()) error { return errors.New("no space left") })
	f("interrupted", func(cancel func()) error { cancel(); return context.Canceled })
}

// TestWithdrawKilled kills the withdrawal of a night at each of its steps. Then it succeeds when it is repeated, or the
// next night does. Afterwards the night's record agrees with the head about the scan.
func TestWithdrawKilled(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 17
	}
	bubble.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		m := teamOn(t, disk)
		m.calm(20)
		for range 3 {
			m.night()
		}
		now := m.now
		for n, crashed := 1, true; crashed; n += step {
			for _, again := range []bool{true, false} {
				m := teamOn(t, disk.Restart(storetest.Nothing))
				disk = disk.Restart(storetest.Nothing)
				m.calm(20)
				m.now = now
				direct := m.store
				dying := &storetest.Faults{Store: direct}
				dying.CrashAt(n, n/step%2 == 0 != again)
				o := m.options()
				o.Store, o.Date = dying, "2026-11-03"
				_, err := Withdraw(t.Context(), o, "a wrong list")
				if crashed = dying.Crashed(); !crashed && err != nil {
					t.Fatal(err)
				}
				_ = dying.Kill() // which steps after its death fail
				at := fmt.Sprintf("killed at step %d, %v, repeated %v", n, dying.Steps()[len(dying.Steps())-1], again)
				o.Store = direct
				if again {
					if _, err := Withdraw(t.Context(), o, "a wrong list"); err != nil {
						t.Errorf("%s: %v", at, err)
					}
				}
				if next := m.night(); next.State != Published {
					t.Errorf("%s: the next night is %+v", at, next)
				}
				scans, err := commit.Scans(t.Context(), direct)
				if err != nil || len(scans) != 4 {
					t.Fatalf("%s: %d scans, %v", at, len(scans), err)
				}
				left, err := ReadNight(t.Context(), direct, o.Date)
				if err != nil || again && (left.State != Discarded || left.Error != "withdrawn: a wrong list") || again &&
					scans[2].Published() {
					t.Errorf("%s: the night is %+v, its scan %s, %v", at, left, scans[2].Publication, err)
				}
				if has := strings.Contains(m.ledger(), "03"); has != scans[2].Published() {
					t.Errorf("%s: the scan is %s, the history has %s", at, scans[2].Publication, m.ledger())
				}
				m.sound(at)
			}
		}
	})
}
