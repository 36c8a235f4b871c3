package nightly

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
)

// listServer answers with a list and a Date.
type listServer struct {
	date string
	age  time.Duration
}

func (s *listServer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"Date": {s.date}}, Body: io.NopCloser(strings.NewReader("h0.test\nh1.test\n"))}
	if s.age > 0 {
		w.Header.Set("Age", strconv.Itoa(int(s.age.Seconds())))
	}
	return w, nil
}

// TestWrongClock runs nights by clocks that are wrong by days: nothing is scanned or pruned, and as soon as the clock is right, nights go
// on as if there had been none.
func TestWrongClock(t *testing.T) {
	m := newTeam(t)
	server := &listServer{}
	night := func(wrong time.Duration) (*Night, error) {
		t.Helper()
		server.date = m.now.Format(http.TimeFormat)
		o := m.options()
		o.Now = func() time.Time { return m.now.Add(wrong) }
		o.Keep = Keep{Nights: 2}
		o.List.Source, o.List.Client = "https://lists.example/top.txt", &http.Client{Transport: server}
		return Run(t.Context(), o)
	}
	there := func() (dates []string) {
		t.Helper()
		scans, err := commit.Scans(t.Context(), m.store)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range scans {
			dates = append(dates, s.ScanDate)
		}
		return dates
	}
	right := func() {
		t.Helper()
		if n, err := night(0); err != nil || n.State != Published || n.Date != m.now.Format(time.DateOnly) || n.PruneError != "" {
			t.Fatalf("%s: %+v, %v", m.now, n, err)
		}
		yesterday := m.now.AddDate(0, 0, -1).Format(time.DateOnly)
		if got := there(); len(got) > 1 && (len(got) != 2 || got[0] != yesterday) {
			t.Errorf("%s: there are the nights %s", m.now, got)
		}
		m.now = m.now.AddDate(0, 0, 1)
	}
	right()
	right()
	for _, days := range []int{1, 2, 7, 20, 31, 60, 400, -1, -2, -20, -400} {
		before, asked := fmt.Sprint(there()), m.asked
		for range 2 {
			n, err := night(time.Duration(days) * 24 * time.Hour)
			if err == nil && days == -1 && n.Date < m.now.Format(time.DateOnly) {
				break // it is the night of yesterday, which is published
			}
			if err == nil || !strings.Contains(err.Error(), "clock") {
				t.Errorf("%d days: %+v, %v", days, n, err)
			}
		}
		if after := fmt.Sprint(there()); after != before || m.asked != asked {
			t.Errorf("%d days: there were the nights %s, and are %s; %d sites were asked", days, before, after, m.asked-asked)
		}
		right()
	}
	m.sound("at the end")
}

// TestClockOf compares clocks with what servers say: what says nothing is no evidence.
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
