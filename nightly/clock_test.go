package nightly

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
)

// listServer answers with a list and a Date.
type listServer struct {
	date string
	age  time.Duration
}

func (s *listServer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"Date": {s.date}},
		Body: io.NopCloser(strings.NewReader("h0.test\nh1.test\n"))}
	if s.age > 0 {
		w.Header.Set("Age", strconv.Itoa(int(s.age.Seconds())))
	}
	return w, nil
}

// clocks is a team whose clock can be wrong. A night takes an hour.
type clocks struct {
	*team
	wrong  time.Duration
	given  string // --date
	missed bool   // a night was, so that more than half of a few may be due
	server *listServer
}

func newClocks(t *testing.T, keep int, https bool) *clocks {
	t.Helper()
	m := &clocks{team: newTeam(t)}
	m.calm(2)
	m.keep = Keep{Nights: keep}
	if https {
		m.server = &listServer{}
	}
	return m
}

func (m *clocks) run() (*Night, error) {
	m.Helper()
	o := m.options()
	o.Date, o.Now = m.given, func() time.Time { return m.now.Add(m.wrong) }
	o.Scan = func(ctx context.Context, s Scan) error {
		m.now = m.now.Add(time.Hour)
		return m.scan(ctx, s)
	}
	if m.server != nil {
		m.server.date = m.now.Format(http.TimeFormat)
		o.List.Source, o.List.Client = "https://lists.example/top.txt", &http.Client{Transport: m.server}
	}
	return Run(m.Context(), o)
}

// is runs a night, and checks its state.
func (m *clocks) is(want State) *Night {
	m.Helper()
	n, err := m.run()
	if err != nil || n.State != want || n.PruneError != "" && !m.missed {
		m.Fatalf("%s %+d h: %+v, %v", m.now, int(m.wrong.Hours()), n, err)
	}
	return n
}

// tomorrow is the next night at the same time.
func (m *clocks) tomorrow() { m.now = m.now.Truncate(24*time.Hour).AddDate(0, 0, 1).Add(2 * time.Hour) }

// published lists the dates that readers get.
func (m *clocks) published() (dates []string) {
	m.Helper()
	scans, err := commit.Scans(m.Context(), m.store)
	if err != nil {
		m.Fatal(err)
	}
	for _, s := range scans {
		if s.Published() {
			dates = append(dates, s.ScanDate)
		}
	}
	slices.Sort(dates)
	return dates
}

// right runs tonight with a right clock. Afterwards the dataset has the last nights that are kept.
func (m *clocks) right() {
	m.Helper()
	m.wrong = 0
	today := m.now.Format(time.DateOnly)
	n := m.is(Published)
	first := m.now.AddDate(0, 0, 1-m.keep.Nights).Format(time.DateOnly)
	if got := m.published(); n.Date != today || !slices.Contains(got, today) || m.keep.Nights > 0 && got[0] < first &&
		n.PruneError == "" {
		m.Errorf("%s: published is %s, and there are %s", today, n.Date, got)
	}
	m.missed = n.PruneError != ""
	m.tomorrow()
}

// TestWrongClock runs nights by clocks that are wrong by days: nothing is pruned, and as soon as the clock is right,
// nights continue as if there had been no wrong ones, also on the dates that the wrong clock had.
func TestWrongClock(t *testing.T) {
	f := func(keep int, https bool, after int, wrong ...int) {
		t.Helper()
		m := newClocks(t, keep, https)
		missed := 0
		for range 3 {
			m.right()
		}
		for _, days := range wrong {
			before, asked := fmt.Sprint(m.published()), m.asked
			for range 2 {
				m.wrong = time.Duration(days) * 24 * time.Hour
				n, err := m.run()
				switch held := err == nil && n.State == Held && n.Out[0].Figure == "date"; {
				case !https && days > 0 && held && strings.Contains(m.told[len(m.told)-1], fmt.Sprintf("the date is %d days after",
					days+missed+1)):
				case !held && err != nil && strings.Contains(err.Error(), "clock"):
				default:
					t.Errorf("keep %d, https %v, %d days: %+v, %v", keep, https, days, n, err)
				}
			}
			m.now = m.now.Truncate(24 * time.Hour).Add(2 * time.Hour)
			if after := fmt.Sprint(m.published()); after != before || (https || days < 0) && m.asked != asked {
				t.Errorf("keep %d, https %v, %d days: there were the nights %s, and are %s; %d sites were asked", keep, https, days,
					before, after, m.asked-asked)
			}
			if days > 0 && days%2 == 1 { // the wrong night was the only one of its day
				m.missed = true
				missed++
				m.tomorrow()
			} else {
				missed = 0
				m.right()
			}
		}
		for range after { // on the dates of wrong clocks, too
			m.right()
		}
		m.sound("at the end")
	}
	if testing.Short() {
		f(2, true, 2, 1, 20, -400)
		f(2, false, 7, 1, 2, 7, 400, -1, -400)
		return
	}
	f(2, true, 2, 1, 2, 7, 20, 31, 60, 400, -1, -2, -20, -400)
	f(2, false, 30, 1, 2, 7, 20, 31, 60, 400, -1, -2, -20, -400)
	for _, keep := range []int{30, 365} {
		f(keep, true, 1, 20, 400, -20)
		f(keep, false, 2, 1, 29, 31, 400, -1, -20)
	}
}

// leasing locks as an object store does.
type leasing struct{ store.Store }

func (s leasing) Lock(ctx context.Context, name string, holder []byte) (store.Unlocker, error) {
	unlock, err := s.Store.Lock(ctx, name, holder)
	return lease{unlock}, err
}

type lease struct{ store.Unlocker }

func (lease) Late() bool { return false }
func (lease) Fenced()    {}

// TestMissedNights shows which nights are held because nights before them are missing, and how a person continues.
func TestMissedNights(t *testing.T) {
	pause := func(m *clocks, days int) { m.now = m.now.AddDate(0, 0, days) }

	m := newClocks(t, 3, false)
	m.right()
	m.right()
	pause(m, 90)
	held := m.is(Held).Date
	m.is(Held) // the same night again
	m.tomorrow()
	m.is(Held)
	m.tomorrow()
	o := m.options()
	o.Date = held
	if n, err := Release(t.Context(), o); err != nil || n.State != Published {
		t.Fatalf("%+v, %v", n, err)
	}
	o.Date = m.now.AddDate(0, 0, -1).Format(time.DateOnly)
	if n, err := Release(t.Context(), o); err != nil || n.State != Published {
		t.Fatalf("%+v, %v", n, err)
	}
	for range 4 {
		m.is(Published)
		m.tomorrow()
	}

	m = newClocks(t, 3, false) // a person gives the date
	m.right()
	pause(m, 90)
	m.given = m.now.Format(time.DateOnly)
	m.is(Published)
	m.tomorrow()
	m.given = ""
	m.is(Published)

	m = newClocks(t, 3, true) // the server of the list has the same date
	m.right()
	pause(m, 90)
	m.is(Published)

	m = newClocks(t, 3, false) // an object store refuses a wrong clock
	m.store = leasing{m.store}
	m.right()
	pause(m, 90)
	m.is(Published)

	m = newClocks(t, 0, false) // once a week
	m.right()
	for range 3 {
		pause(m, 6)
		m.given = m.now.Format(time.DateOnly)
		m.is(Published)
		m.tomorrow()
	}
	m.given = ""
	pause(m, 6)
	m.is(Published)
	m.tomorrow()
	pause(m, 7)
	m.is(Held)

	m = newClocks(t, 0, false) // nights that fail are nights
	m.right()
	m.right()
	for range 5 {
		list := m.list
		m.list += ".missing"
		if n, err := m.run(); err == nil || n.State != Failed {
			t.Fatalf("%+v, %v", n, err)
		}
		m.list = list
		m.tomorrow()
	}
	m.right()

	m = newClocks(t, 0, false) // the scan of a wrong date stops half-way
	m.right()
	m.wrong, m.fails = 20*24*time.Hour, fmt.Errorf("stopped: %w", ErrDeadline)
	m.is(Incomplete)
	m.calm(2)
	m.now = m.now.Truncate(24 * time.Hour).Add(2 * time.Hour)
	for range 25 {
		m.right()
	}

	for _, days := range []int{1, 3, 20} { // the clock stays wrong for some nights
		m = newClocks(t, 2, false)
		m.right()
		m.right()
		for range 4 {
			m.wrong = time.Duration(days) * 24 * time.Hour
			m.is(Held)
			m.tomorrow()
		}
		if got := fmt.Sprint(m.published()); got != "[2026-11-01 2026-11-02]" {
			t.Errorf("%d days: there are %s", days, got)
		}
		m.missed = true
		for range 5 {
			m.right()
		}
		m.sound("after wrong nights")
	}

	m = newClocks(t, 0, false) // a person discards the night of a wrong date
	m.right()
	m.wrong = 24 * time.Hour
	o = m.options()
	o.Date = m.is(Held).Date
	if n, err := Discard(t.Context(), o); err != nil || n.State != Discarded {
		t.Fatalf("%+v, %v", n, err)
	}
	m.tomorrow()
	m.now = m.now.Add(5 * time.Hour)
	m.right()
	list, err := Listing(t.Context(), m.store)
	var states []string
	for _, e := range list {
		states = append(states, e.ScanID+" "+string(e.Publication))
	}
	if want := "[night-2026-11-01 published night-2026-11-03 discarded night-2026-11-03-again published]"; err != nil ||
		fmt.Sprint(states) != want {
		t.Errorf("the listing is %q, %v, want %s", states, err, want)
	}
	m.sound("at the end")

	m = newClocks(t, 3, false) // pruning by hand
	for range 4 {
		m.right()
	}
	pause(m, 1)
	o = m.options()
	o.Keep.Nights = 2
	if err := Prune(t.Context(), o, 0, false); err == nil || !strings.Contains(err.Error(),
		"the date is 2 days after that of the last night that is in no doubt: the clock may be wrong; if it is right, repeat with --date 2026-11-06") {
		t.Errorf("pruning by a date in doubt: %v", err)
	}
	o.Date = "2026-11-05"
	if err := Prune(t.Context(), o, 2, false); err != nil || fmt.Sprint(m.published()) != "[2026-11-04]" {
		t.Errorf("there are %s, %v", m.published(), err)
	}
}

// TestClockOf compares clocks with the answers of servers: an answer without a time proves nothing.
func TestClockOf(t *testing.T) {
	now := time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC)
	f := func(date string, age time.Duration, given string, wrong bool) {
		t.Helper()
		o := &Options{Date: given, Now: func() time.Time { return now }}
		response, _ := (&listServer{date: date, age: age}).RoundTrip(nil)
		if err := o.checkClock(response.Header); (err != nil) != wrong {
			t.Errorf("Date %q, Age %v, --date %q: %v", date, age, given, err)
		}
	}
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	f(at(0), 0, "", false)
	f(at(12*time.Hour), 0, "", false)
	f(at(-12*time.Hour), 0, "", false)
	f(at(24*time.Hour), 0, "", true)
	f(at(-24*time.Hour), 0, "", true)
	f(at(-24*time.Hour), 24*time.Hour, "", false) // from a cache
	f(at(0), 24*time.Hour, "", true)
	f(at(-24*time.Hour), 0, "2026-11-01", false) // a person says so
	f("", 0, "", false)
	f("yesterday", 0, "", false)
	f("Sun, 01 Nov 0000 02:00:00 GMT", 0, "", true)
}

// TestNextTime shows the times of deadlines, also on days on which the clock changes.
func TestNextTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("SKIPPED: no time zones here:", err)
	}
	f := func(now, clock, want string) {
		t.Helper()
		at, err := time.Parse(time.RFC3339, now)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := time.Parse("15:04", clock)
		if err != nil {
			t.Fatal(err)
		}
		if got := nextTime(at.In(berlin), shown).Format(time.RFC3339); got != want {
			t.Errorf("after %s, it is %s at %s, want %s", now, clock, got, want)
		}
	}
	f("2026-11-24T01:00:00Z", "06:00", "2026-11-24T06:00:00+01:00")
	f("2026-11-24T22:30:00Z", "06:00", "2026-11-25T06:00:00+01:00")
	f("2026-11-24T05:00:00Z", "06:00", "2026-11-25T06:00:00+01:00")
	f("2026-12-31T22:00:00Z", "00:30", "2027-01-01T00:30:00+01:00")
	f("2026-10-24T23:00:00Z", "06:00", "2026-10-25T06:00:00+01:00")
	f("2026-03-28T23:30:00Z", "06:00", "2026-03-29T06:00:00+02:00")
}

// TestParse shows what the settings of a night may be.
func TestParse(t *testing.T) {
	bound := func(text string, want Bound, wantOK bool) {
		t.Helper()
		if _, got, ok := ParseBound(text); ok != wantOK || ok && got != want {
			t.Errorf("%q is %v, %v; want %v, %v", text, got, ok, want, wantOK)
		}
	}
	bound("dns_failed=0..0.1", Bound{0, 0.1}, true)
	bound("cdn.cloudflare.refused=0.25..1", Bound{0.25, 1}, true)
	for _, wrong := range []string{"", "dns_failed", "dns_failed=0.1", "dns_failed=0.2..0.1", "dns_failed=0..NaN",
		"dns_failed=-1..1", "dns_failed=0..2", "failures=0..1"} {
		bound(wrong, Bound{}, false)
	}
	days := func(text string, want int, wantOK bool) {
		t.Helper()
		if got, ok := ParseDays(text); ok != wantOK || ok && got != want {
			t.Errorf("%q is %d, %v; want %d, %v", text, got, ok, want, wantOK)
		}
	}
	days("1d", 1, true)
	days("36525d", 36525, true)
	for _, wrong := range []string{"", "d", "90", "0d", "-1d", "36526d", "1.5d"} {
		days(wrong, 0, false)
	}
}
