package simweb

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unique"
)

// TestRecord records connections at given times of a fake clock, and compares the busiest.
func TestRecord(t *testing.T) {
	hot, one, other := netip.MustParseAddr("127.10.0.1"), netip.MustParseAddr("127.11.0.2"),
		netip.MustParseAddr("127.12.0.3")
	type came struct {
		after time.Duration // since the one before
		addr  netip.Addr
		host  string
	}
	synctest.Test(t, func(t *testing.T) {
		f := func(want Record, visits ...came) {
			t.Helper()
			w := &Web{world: &world{hot: hot}, ledger: ledger{begun: time.Now()}, places: map[netip.Addr]*place{
				hot: {addr: hot}, one: {addr: one}, other: {addr: other},
			}}
			for _, v := range visits {
				time.Sleep(v.after)
				row := w.ledger.note(w.places[v.addr], 0)
				if v.host != "" {
					w.ledger.name(row, v.host)
				}
			}
			got := w.Record()
			same := func(what string, got, want *Load) {
				t.Helper()
				switch {
				case got == nil || want == nil:
					if got != want {
						t.Errorf("%s: %+v, want %+v", what, got, want)
					}
				case got.Name != want.Name || got.Total != want.Total || got.Second != want.Second ||
					got.TenSeconds != want.TenSeconds:
					t.Errorf("%s: %+v, want %+v", what, got, want)
				case got.Total == 1 && !got.First.Equal(got.Last) || got.Total > 1 && got.First.After(got.Last):
					t.Errorf("%s: from %v to %v", what, got.First, got.Last)
				}
			}
			same("hot", got.Hot, want.Hot)
			same("address", got.Address, want.Address)
			same("address of ten", got.AddressOfTen, want.AddressOfTen)
			same("host", got.Host, want.Host)
			same("host of ten", got.HostOfTen, want.HostOfTen)
			if n := len(w.Accepts(hot)); want.Hot != nil && n != want.Hot.Total {
				t.Errorf("%d accepts at the hot address, want %d", n, want.Hot.Total)
			}
		}
		load := func(name string, total, second, ten int) *Load {
			return &Load{Name: name, Total: total, Second: second, TenSeconds: ten}
		}
		hotName, oneName, otherName := hot.String(), one.String(), other.String()

		f(Record{})
		f(Record{Hot: load(hotName, 1, 1, 1)}, came{0, hot, ""})
		// A connection exactly a second later is outside the second.
		f(Record{Hot: load(hotName, 2, 1, 2)}, came{0, hot, ""}, came{time.Second, hot, ""})
		f(Record{Hot: load(hotName, 2, 2, 2)}, came{0, hot, ""}, came{time.Second - 1, hot, ""})
		f(Record{Hot: load(hotName, 3, 1, 2)}, came{0, hot, ""}, came{5 * time.Second, hot, ""},
			came{6 * time.Second, hot, ""})
		// One address has the busiest second, another the busiest ten.
		f(Record{Address: load(otherName, 2, 2, 2), AddressOfTen: load(oneName, 3, 1, 3)},
			came{0, one, ""}, came{2 * time.Second, one, ""}, came{2 * time.Second, one, ""}, came{time.Second, other, ""},
			came{0, other, ""})
		// Among equals, the first name.
		f(Record{Address: load(oneName, 1, 1, 1), AddressOfTen: load(oneName, 1, 1, 1)}, came{0, other, ""}, came{0, one, ""})
		// A host counts over all its addresses, the hot one too; connections without a request have no host.
		f(Record{Hot: load(hotName, 2, 2, 2), Address: load(oneName, 2, 2, 2), AddressOfTen: load(oneName, 2, 2, 2),
			Host: load("a.test", 2, 2, 2), HostOfTen: load("a.test", 2, 2, 2)},
			came{0, hot, "a.test"}, came{0, one, "a.test"}, came{0, hot, ""}, came{0, one, "b.test"})
		f(Record{Hot: load(hotName, 1, 1, 1)}, came{0, hot, strings.Repeat("a", maxHostName+1)})
	})
}

// TestRecordCountsWhenConnectionsCame records three connections that came 900 ms after one another, two of which were
// accepted together with the third.
func TestRecordCountsWhenConnectionsCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hot := netip.MustParseAddr("127.10.0.1")
		p := &place{addr: hot}
		w := &Web{world: &world{hot: hot}, ledger: ledger{begun: time.Now()}, places: map[netip.Addr]*place{hot: p}}
		time.Sleep(2 * time.Second)
		for _, waited := range []time.Duration{0, 1800 * time.Millisecond, 900 * time.Millisecond} {
			w.ledger.note(p, waited)
		}
		came := w.Accepts(hot)
		if r := w.Record(); len(came) != 3 || came[1].Sub(came[0]) != 900*time.Millisecond || r.Hot.Second != 2 ||
			r.Hot.TenSeconds != 3 || !r.Hot.First.Equal(came[0]) {
			t.Errorf("%v, %+v", came, r.Hot)
		}
	})
}

// TestRecordIsBounded fills the ledger, and connects twice more.
func TestRecordIsBounded(t *testing.T) {
	hot := netip.MustParseAddr("127.10.0.1")
	p := &place{addr: hot}
	w := &Web{world: &world{hot: hot}, places: map[netip.Addr]*place{hot: p}}
	w.ledger.rows = make([]acceptRow, maxRecorded-1)
	for i := range w.ledger.rows {
		w.ledger.rows[i] = acceptRow{at: time.Duration(i) * time.Second, place: p, host: unique.Make("a.test")}
	}
	w.ledger.begun = time.Now().Add(-maxRecorded * time.Second)
	for want, row := range []int{maxRecorded - 1, -1, -1} {
		got := w.ledger.note(p, 0)
		if got != row {
			t.Errorf("connection %d of 3 was kept as %d, want %d", want+1, got, row)
		}
		w.ledger.name(got, "a.test")
	}
	if r := w.Record(); r.Missed != 2 || r.Hot.Total != maxRecorded || r.Hot.Second > 2 || r.Hot.TenSeconds < 10 ||
		r.Host.Total != maxRecorded {
		t.Errorf("record: %+v of %+v", r, r.Hot)
	}
}
