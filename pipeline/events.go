package pipeline

import "time"

// event is something that becomes due: the next exchange of a level's key, or a record's retry.
type event struct {
	at    time.Duration // since the run began
	what  uint64        // a key, or a ref where level is wake
	level uint8
}

// wake is the level of events that belong to no level: a record wakes up.
const wake = 255

// events is a heap of events, the earliest first. It is typed and four-ary: container/heap would box every event.
type events []event

func (h *events) push(e event) {
	*h = append(*h, e)
	s := *h
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if s[parent].at <= e.at {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = e
}

func (h *events) pop() event {
	s := *h
	first, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	i := 0
	for {
		child := 4*i + 1
		if child >= len(s) {
			break
		}
		for j := child + 1; j < min(child+4, len(s)); j++ {
			if s[j].at < s[child].at {
				child = j
			}
		}
		if s[child].at >= last.at {
			break
		}
		s[i] = s[child]
		i = child
	}
	if len(s) > 0 {
		s[i] = last
	}
	return first
}
