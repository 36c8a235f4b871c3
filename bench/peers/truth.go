package main

import (
	"time"
)

// maxTime is how long a parser may think about one file.
const maxTime = 5 * time.Second

// maxAbandoned is how often a parser may exceed it. What does not return cannot be stopped, only left behind.
const maxAbandoned = 3

// Score is how a parser's decisions compare with Google's.
type Score struct {
	Peer
	Files     int
	Decisions int // asked for, in all files
	Differ    int // decisions, in files that were answered
	Agreeing  int // files answered without one
	Refused   int // files, with an error
	Panicked  int // files
	Late      int // files, after the time allowed, or not asked for after too many such
}

// Answered is the number of files that there are decisions for.
func (s *Score) Answered() int { return s.Files - s.Refused - s.Panicked - s.Late }

// Agreement is the share of all decisions that are Google's. Where there is none, it is not.
func (s *Score) Agreement() float64 {
	if s.Decisions == 0 {
		return 0
	}
	each := s.Decisions / s.Files
	return float64(s.Answered()*each-s.Differ) / float64(s.Decisions)
}

// add asks the parser about a pack, at most limit for each file.
func (s *Score) add(pack Pack, truth Truth, limit time.Duration) {
	w := newWorker(s.Peer, truth.Questions)
	defer func() { close(w.in) }()
	abandoned := 0
	timer := time.NewTimer(limit)
	for i := range pack.Bodies {
		s.Files++
		s.Decisions += truth.Len()
		if abandoned == maxAbandoned {
			s.Late++
			continue
		}
		w.in <- &pack.Bodies[i]
		timer.Reset(limit)
		select {
		case a := <-w.out:
			s.count(a, truth.Bits[i])
		case <-timer.C:
			s.Late++
			abandoned++
			close(w.in) // it ends if it ever comes back
			w = newWorker(s.Peer, truth.Questions)
		}
	}
}

// count compares the answers to one file.
func (s *Score) count(a answer, bits string) {
	switch {
	case a.panicked:
		s.Panicked++
		return
	case a.err != nil:
		s.Refused++
		return
	}
	differ := 0
	for i, allowed := range a.allowed {
		if allowed != (bits[i] == '1') {
			differ++
		}
	}
	s.Differ += differ
	if differ == 0 {
		s.Agreeing++
	}
}

// answer is what came of one file.
type answer struct {
	allowed  []bool // valid until the next file is given to the worker
	err      error
	panicked bool
}

// worker asks one parser in a goroutine of its own, so that it need not be waited for.
type worker struct {
	in  chan *Body
	out chan answer // has room for the answer that nobody waits for any more
}

func newWorker(peer Peer, q Questions) *worker {
	w := &worker{in: make(chan *Body), out: make(chan answer, 1)}
	judge, allowed := peer.New(q), make([]bool, q.Len())
	ask := func(body *Body) (a answer) {
		defer func() {
			if recover() != nil {
				a = answer{panicked: true}
			}
		}()
		return answer{allowed: allowed, err: judge(body, allowed)}
	}
	go func() {
		for body := range w.in {
			w.out <- ask(body)
		}
	}()
	return w
}
