package pipeline

import (
	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Archive is a Source that also has the answers.
type Archive interface {
	Source
	// Recall makes r the Response of the entry that Next returned last. It is called once for each entry that is not
	// skipped, before the next Next, from the same goroutine. It may exchange memory with r.
	Recall(r *exchange.Response)
}

// NewReplay makes a run without network requests: of Config, only Skip and Progress count, and Stop has nothing to wait
// for.
func NewReplay(cfg Config, archive Archive, judge Judge, sink Sink) *Pipeline {
	p := New(Config{Skip: cfg.Skip, Progress: cfg.Progress}, archive, nil, judge, sink)
	p.archive = archive
	return p
}

// startReplay starts the stages of a replay, which are the last ones of a scan. Nothing here has a deadline, so stalls
// do not matter.
//
//	feed ─recalled─► judge ─keeping─► keep
//	  ▲                                 │
//	  └──────────────sites──────────────┘
func (r *run) startReplay(archive Archive) {
	recalled := make(chan *audit.Site, cap(r.sites))
	r.stage("feed", 1, func() error { return r.recall(archive, recalled) })
	r.stage("judge", judges(), func() error { return r.judgeRecalled(recalled) })
	r.stage("keep", 1, r.keep)
}

// recall reads the archive until its end or Stop. It ends the run: the judges finish what they have, and then the
// keeper.
func (r *run) recall(archive Archive, recalled chan<- *audit.Site) error {
	r.list(func(entry Entry) bool {
		site := <-r.sites
		site.Seq, site.Input, site.Label, site.Rank, site.Origin = entry.Seq, entry.Input, entry.Label, entry.Rank,
			entry.Origin
		archive.Recall(&site.Fetch)
		r.progress.Fed.Add(1)
		recalled <- site
		return true
	})
	close(recalled)
	r.judges.Wait()
	close(r.keeping)
	return nil
}

// judgeRecalled judges answers that need no slot.
func (r *run) judgeRecalled(recalled <-chan *audit.Site) error {
	defer r.judges.Done()
	for site := range recalled {
		site.SetOrigin(site.Origin)
		r.auditor.Judge(site)
		r.keeping <- site
	}
	return nil
}
