package audit

import (
	"bytes"
	"iter"

	"github.com/bulkscan/bulkscan/parser"
)

// This file reads Content-Signal values (contentsignals.org). A path before the pairs is no part of that specification;
// several parsers read it, and at least one generator writes it.
//
// The records of a file become a short list of distinct facts. The facts for an agent are a set, so that the sets of
// several groups are joined by union.

// SignalValue splits a Content-Signal value into the pattern of its paths (empty for all) and its pairs. A value is
// valid if it has a pair and every part of it is understood: a pair `key=value` of words, with `yes` or `no` for a
// known key, and one of three words for `use`. Empty parts are allowed, as in HTTP's lists (RFC 9110 §5.6.1).
func SignalValue(value []byte) (path, pairs []byte, valid bool) {
	if len(value) > 0 && isRuleValue(value) {
		end := bytes.IndexAny(value, " \t")
		if end < 0 {
			return nil, nil, false
		}
		path, value = value[:end], value[end:]
	}
	for rest, more := value, true; more; {
		var pair []byte
		pair, rest, more = bytes.Cut(rest, []byte(","))
		key, val, isPair := bytes.Cut(pair, []byte("="))
		switch {
		case len(bytes.TrimSpace(pair)) == 0:
		case !isPair || !validSignal(bytes.TrimSpace(key), bytes.TrimSpace(val)):
			return nil, nil, false
		default:
			valid = true
		}
	}
	if !valid {
		return nil, nil, false
	}
	return path, value, true
}

// SignalPairs yields the pairs of a valid value, as SignalValue returns them: trimmed, otherwise unchanged. Keys and
// values are case-insensitive.
func SignalPairs(pairs []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for pair := range bytes.SplitSeq(pairs, []byte(",")) {
			key, val, ok := bytes.Cut(pair, []byte("="))
			if ok && !yield(bytes.TrimSpace(key), bytes.TrimSpace(val)) {
				return
			}
		}
	}
}

// signalKeys are the keys that contentsignals.org defines, in the order in which they are written.
var signalKeys = [...]string{"search", "ai-input", "ai-train", "use"}

// signalKey returns the index of a known key; of any other, the number of known ones.
func signalKey(key []byte) int {
	for i, known := range signalKeys {
		if equalFold(key, known) {
			return i
		}
	}
	return len(signalKeys)
}

func validSignal(key, value []byte) bool {
	if !isWord(key) || !isWord(value) {
		return false
	}
	switch signalKey(key) {
	case len(signalKeys):
		return true
	case len(signalKeys) - 1:
		return equalFold(value, "immediate") || equalFold(value, "reference") || equalFold(value, "full")
	}
	return equalFold(value, "yes") || equalFold(value, "no")
}

// isWord reports whether b is visible ASCII without quotation marks and the separators `=`, `;` and `,`.
func isWord(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c >= 0x7F || c == '=' || c == ';' || c == ',' || c == '"' || c == '\'' {
			return false
		}
	}
	return len(b) > 0
}

// signalFact is a value that some records give a key, for some paths.
type signalFact struct {
	path, key, value []byte    // as first written; no path for all paths
	known            int       // signalKey
	weight           int32     // of its path, as in rootUsage; 0 if it does not match `/`
	over             signalSet // facts with a more specific path, which hold on `/` instead of this one
	against          signalSet // facts that contradict it
	met              int       // how many of the agents of the current group have it
}

// signalSet is a set of facts, as bits by their index in signalFacts.
type signalSet uint64

// signalFacts are the distinct facts of a file. Further ones than the bounds allow are dropped.
type signalFacts struct {
	list      []signalFact
	elsewhere int       // facts whose path does not match `/`
	file      signalSet // of records before any group
	root      signalSet // whose path matches `/`
	text      []byte    // of all canonical forms
}

// Bounds of signalFacts.list.
const (
	maxSignalFacts     = 64 // bits of a signalSet
	maxSignalElsewhere = 32
)

// maxSignal bounds a canonical form, in bytes.
const maxSignal = MaxEvidenceValue

func (s *signalFacts) reset() {
	clear(s.list) // they are views
	*s = signalFacts{list: s.list[:0], text: trimmed(s.text)}
}

// fact returns the index of a fact, a new one if need be; -1 beyond the bounds.
func (s *signalFacts) fact(path, key, value []byte) int {
	if string(path) == "/" {
		path = nil // the same paths
	}
	f := signalFact{path: path, key: key, value: value, known: signalKey(key)}
	for i := range s.list {
		if o := &s.list[i]; o.sameKey(&f) && bytes.Equal(o.path, path) && bytes.EqualFold(o.value, value) {
			return i
		}
	}
	if len(path) == 0 || parser.Match(path, []byte("/")) {
		f.weight = int32(len(path)) + 1
	}
	i := len(s.list)
	if i == maxSignalFacts || f.weight == 0 && s.elsewhere == maxSignalElsewhere {
		return -1
	}
	bit := signalSet(1) << i
	for k := range s.list {
		o, other := &s.list[k], signalSet(1)<<k
		if !o.sameKey(&f) {
			continue
		}
		if bytes.Equal(o.path, path) && f.known < len(signalKeys) {
			f.against, o.against = f.against|other, o.against|bit
		}
		if o.overrules(&f) {
			f.over |= other
		} else if f.overrules(o) {
			o.over |= bit
		}
	}
	if f.weight > 0 {
		s.root |= bit
	} else {
		s.elsewhere++
	}
	s.list = append(s.list, f)
	return i
}

func (f *signalFact) sameKey(o *signalFact) bool {
	return f.known == o.known && (f.known < len(signalKeys) || bytes.EqualFold(f.key, o.key))
}

// overrules reports whether a fact replaces another fact of its key on `/`. The fact with the longer path wins, and at
// equal lengths the narrower one, as IETF AIPREF has it for Content-Usage. `immediate` is neither narrower nor wider
// than other uses.
func (f *signalFact) overrules(o *signalFact) bool {
	if f.weight != o.weight {
		return f.weight > o.weight && o.weight > 0
	}
	return f.known < len(signalKeys) && (equalFold(f.value, "no") && equalFold(o.value, "yes") ||
		equalFold(f.value, "reference") && equalFold(o.value, "full"))
}

// atRoot returns what a set states on `/` in canonical form, such as `search=yes, ai-train=no`: in lower case, known
// keys in the order of signalKeys, then others in that of the file. A pair beyond maxSignal is left out. It returns nil
// for nothing, otherwise a view that is valid until reset.
func (s *signalFacts) atRoot(set signalSet) []byte {
	if set &= s.root; set == 0 {
		return nil
	}
	from := len(s.text)
	for known := range len(signalKeys) + 1 {
		for i := range s.list {
			f := &s.list[i]
			if f.known != known || set>>i&1 == 0 || set&f.over != 0 || len(s.text)-from+len(f.key)+len(f.value)+
				len(", =") > maxSignal {
				continue
			}
			if len(s.text) > from {
				s.text = append(s.text, ", "...)
			}
			s.text = append(s.text, f.key...)
			s.text = append(s.text, '=')
			s.text = append(s.text, f.value...)
		}
	}
	text := s.text[from:len(s.text):len(s.text)]
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			text[i] = c + ('a' - 'A')
		}
	}
	return text
}

// contentSignal gives the facts of a record to the agents listed so far, or to the file before any group. It reports
// whether the value is valid, and whether it contradicts an earlier record for one of them.
func (r *recordReader) contentSignal(rec *parser.Record) (valid, contradicts bool) {
	path, pairs, valid := SignalValue(rec.Value)
	if !valid {
		return false, false
	}
	for key, value := range SignalPairs(pairs) {
		i := r.signals.fact(path, key, value)
		if i < 0 {
			continue
		}
		f := &r.signals.list[i]
		if rec.Group < 0 {
			contradicts = contradicts || r.signals.file&f.against != 0
			r.signals.file |= 1 << i
			continue
		}
		for _, who := range r.since(&f.met) {
			b := r.belongings(who)
			contradicts = contradicts || b.signals&f.against != 0
			b.signals |= 1 << i
		}
	}
	return true, contradicts
}
