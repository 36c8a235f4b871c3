package shares

import (
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
)

// Status says how far a scan in shares is.
type Status struct {
	ScanID    string         `json:"scan_id"`
	ScanDate  string         `json:"scan_date"`
	State     commit.State   `json:"state"` // complete once the shares are collected
	StartedAt time.Time      `json:"started_at"`
	Count     map[string]int `json:"counts"` // shares by state
	Sites     int64          `json:"sites"`  // kept, as reported
	PerSecond float64        `json:"sites_per_second"`
	Shares    []ShareStatus  `json:"shares"`
}

// ShareStatus says how far one share is.
type ShareStatus struct {
	I         int        `json:"share"`
	State     string     `json:"state"`
	Reason    string     `json:"reason,omitempty"`
	Attempt   int        `json:"attempt"` // how many processes have begun it
	Host      string     `json:"host,omitempty"`
	PID       int        `json:"pid,omitempty"`
	Since     *time.Time `json:"since"`            // start of the last process
	Reported  *time.Time `json:"reported_at"`      // last report
	NoSign    *float64   `json:"no_sign_for_s"`    // seconds since then, of a running share whose next report is overdue
	ListRead  *float64   `json:"list_read"`        // share of the list's bytes; sites that were read may wait for their turn
	Sites     int64      `json:"sites"`            // kept, by all processes
	PerSecond float64    `json:"sites_per_second"` // kept by the last process
}

// States of a share beside those of its record.
const (
	Waiting = "waiting" // no process has begun it
	Silent  = "silent"  // running, and without a report for long: its process may have been killed
)

// A running share reports every half minute, and a report may take ten seconds. Clocks of machines differ, so that a
// share is Silent only after minutes.
const (
	overdueAfter = 40 * time.Second
	silentAfter  = 3 * time.Minute
)

// StatusOf describes a scan by its manifest and the records of the shares that have begun.
func StatusOf(m *commit.Manifest, records map[int]*commit.Share, now time.Time) *Status {
	st := &Status{ScanID: m.ScanID, ScanDate: m.ScanDate, State: m.State, StartedAt: m.StartedAt, Count: map[string]int{}}
	for i := range m.Shares {
		s := shareStatus(i, records[i], now)
		if records[i] == nil && !m.Uncollected() { // a repair has deleted it
			s.State = string(commit.ShareDone)
		}
		st.Count[s.State]++
		st.Sites += s.Sites
		if s.State == string(commit.ShareRunning) {
			st.PerSecond += s.PerSecond
		}
		st.Shares = append(st.Shares, s)
	}
	return st
}

func shareStatus(i int, r *commit.Share, now time.Time) ShareStatus {
	if r == nil {
		return ShareStatus{I: i, State: Waiting}
	}
	s := ShareStatus{
		I: i, State: string(r.State), Reason: r.Reason, Attempt: r.Attempt, Host: r.Holder.Host, PID: r.Holder.PID,
		Since: &r.Holder.StartedAt, Reported: &r.UpdatedAt, Sites: r.Earlier + r.Kept,
	}
	if since := now.Sub(r.UpdatedAt); r.State == commit.ShareRunning && since > overdueAfter {
		seconds := since.Truncate(time.Second).Seconds()
		s.NoSign = &seconds
		if since > silentAfter {
			s.State = Silent
		}
	}
	if r.TotalBytes > 0 {
		read := float64(r.ReadBytes) / float64(r.TotalBytes)
		s.ListRead = &read
	}
	if took := r.UpdatedAt.Sub(r.Holder.StartedAt); took > 0 {
		s.PerSecond = float64(r.Kept) / took.Seconds()
	}
	return s
}
