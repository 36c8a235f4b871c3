package pipeline

import (
	"encoding/json"
	"time"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// stored is a record in the spill file. Its address is not stored: it is resolved again when the record comes back.
type stored struct {
	Seq       uint64           `json:"seq"`
	Host      string           `json:"host"`
	Port      uint16           `json:"port"`
	Requested origin.Scheme    `json:"requested"`
	Input     string           `json:"input"`
	Label     string           `json:"label,omitempty"`
	Rank      int64            `json:"rank,omitempty"`
	Spent     time.Duration    `json:"spent,omitempty"`
	Scheme    origin.Scheme    `json:"scheme"`
	Waited    uint8            `json:"waited,omitempty"`
	Attempts  uint8            `json:"attempts,omitempty"`
	Later     uint8            `json:"later,omitempty"`
	HTTPS     exchange.Failure `json:"https,omitzero"`
	HTTP      exchange.Failure `json:"http,omitzero"`
	Skip      uint8            `json:"skip,omitempty"`
	Unmet     exchange.Outcome `json:"unmet,omitempty"`
	Spoilt    uint8            `json:"spoilt,omitempty"`
	Trail     *storedTrail     `json:"trail,omitempty"`
}

type storedTrail struct {
	Scheme origin.Scheme  `json:"scheme"`
	Host   string         `json:"host"`
	Port   uint16         `json:"port"`
	Path   string         `json:"path"`
	Hops   []exchange.Hop `json:"hops"`
}

func (r *record) store() stored {
	s := stored{
		Seq: r.seq, Host: r.origin.Host(), Port: r.origin.Port(), Requested: r.origin.Scheme(),
		Input: r.input, Label: r.label, Rank: r.rank, Spent: r.spent, Scheme: r.scheme, Waited: r.waited,
		Attempts: r.attempts, Later: r.later, HTTPS: r.https, HTTP: r.http, Skip: r.skip, Unmet: r.unmet, Spoilt: r.spoilt,
	}
	if r.trail != nil {
		t := r.trail.Target
		s.Trail = &storedTrail{Scheme: t.Origin.Scheme(), Host: t.Origin.Host(), Port: t.Origin.Port(), Path: t.Path,
			Hops: r.trail.Hops}
	}
	return s
}

func restore(line []byte) (record, error) {
	var s stored
	if err := json.Unmarshal(line, &s); err != nil {
		return record{}, err
	}
	o, err := origin.New(s.Requested, s.Host, s.Port)
	if err != nil {
		return record{}, err
	}
	r := record{
		seq: s.Seq, origin: o, input: s.Input, label: s.Label, rank: s.Rank, spent: s.Spent, scheme: s.Scheme,
		waited:   s.Waited,
		attempts: s.Attempts, later: s.Later, https: s.HTTPS, http: s.HTTP, skip: s.Skip, unmet: s.Unmet, spoilt: s.Spoilt,
	}
	if s.Trail != nil {
		to, err := origin.New(s.Trail.Scheme, s.Trail.Host, s.Trail.Port)
		if err != nil {
			return record{}, err
		}
		r.trail = &exchange.Trail{Target: exchange.Target{Origin: to, Path: s.Trail.Path}, Hops: s.Trail.Hops}
	}
	return r, nil
}
