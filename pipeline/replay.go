package pipeline

import (
	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/exchange"
)

// Archive is a Source that has the answers too: what exchanges left that have taken place already.
type Archive interface {
	Source
	// Recall makes r the Response of the entry that Next has returned last. It is called once for each that is not skipped,
	// before the next Next, from the same goroutine. It may exchange memory with r.
	Recall(r *exchange.Response)
}

// NewReplay makes a run that asks nobody: of Config, only Skip counts. Otherwise it is as one that New makes, but that Stop
// has nothing to wait for.
func NewReplay(cfg Config, archive Archive, judge Judge, sink Sink) *Pipeline {
	p := New(Config{Skip: cfg.Skip}, archive, nil, judge, sink)
	p.replay = archive
	return p
}

// throughReplay is through of a replay. Its stages are the last ones of a run that asks; nothing waits here for anybody whose
// time could run out while the process stands still, and nobody watches for that.
//
//	feed ─recalled─► judge ─keeping─► keep
//	  ▲                                 │
//	  └──────────────sites──────────────┘
func (r *run) throughReplay() error {
	recalled := make(chan *audit.Site, cap(r.sites))
	r.stage("feed", 1, func() error { return r.recall(recalled) })
	r.stage("judge", judges(), func() error { return r.judgeRecalled(recalled) })
	r.stage("keep", 1, r.keep)
	return r.end()
}

// recall reads the archive until its end or Stop. It ends the run: the judges finish what they have, and then the keeper.
func (r *run) recall(recalled chan<- *audit.Site) error {
	r.list(func(entry Entry) bool {
		site := <-r.sites
		site.Seq, site.Input, site.Label, site.Rank, site.Origin = entry.Seq, entry.Input, entry.Label, entry.Rank, entry.Origin
		r.replay.Recall(&site.Fetch)
		r.progress.Fed.Add(1)
		recalled <- site
		return true
	})
	close(recalled)
	r.judges.Wait()
	close(r.keeping)
	return nil
}

// judgeRecalled is judge, of answers that need no tray.
func (r *run) judgeRecalled(recalled <-chan *audit.Site) error {
	defer r.judges.Done()
	for site := range recalled {
		site.Domain, site.TLD = site.Origin.RegistrableDomain(), site.Origin.TLD()
		r.Pipeline.judge.Judge(site)
		r.keeping <- site
	}
	return nil
}
