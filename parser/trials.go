package parser

import "bytes"

// This file tries the paths that rules name, for a Survey: what a trial costs, and the rules prepared for many paths.

// tryNamed tries the paths that the rules name until one is decided otherwise than the root. Rules that could cause
// that are tried first, so most partial blocks show at once. Only if the first path is decided like the root, the rules
// are prepared for many trials.
func (f *File) tryNamed(groups []uint32, t *tally, rootAllowed bool) (v SiteVerdict, limited bool) {
	order := [...]Key{KeyAllow, KeyDisallow}
	if rootAllowed {
		order = [...]Key{KeyDisallow, KeyAllow}
	}
	size, ok := f.sizeOf(groups)
	if !ok {
		return SitePartial, true
	}
	tried, rules := 0, int(t.allow+t.disallow)
	for _, kind := range order {
		for _, g := range groups {
			start, end := f.GroupRecords(g)
			if !f.charge(end-start, int(f.span(start, end))/4) {
				return SitePartial, true
			}
			for i := start; i < end; i++ {
				r := &f.records[i]
				if r.kind != kind {
					continue
				}
				path := f.rulePath(r)
				if path == nil {
					continue
				}
				allows := false
				switch tried++; tried {
				case 1:
					if !f.charge(2*rules, int(size.octets), 2*trialCost(rules, int(size.wild), path)) {
						return SitePartial, true
					}
					if kind == order[0] && f.unopposed(groups, r, path) {
						return SitePartial, false // decided as its kind says, so otherwise than the root
					}
					w := f.winner(groups, path)
					allows = w.allows()
				case 2:
					if !f.charge(4*rules, int(size.octets)) {
						return SitePartial, true
					}
					f.makeTrials(groups)
					fallthrough
				default:
					trials := &f.surveys.trials
					if !f.charge(trials.fixed, trialCost(len(trials.allow)+len(trials.disallow), trials.wild, path)) {
						return SitePartial, true
					}
					allows = trials.allows(path, f.surveys.patterns, rootAllowed)
				}
				if allows != rootAllowed {
					return SitePartial, false
				}
			}
		}
	}
	if rootAllowed {
		return SiteAllowed, false
	}
	return SiteBlocked, false
}

// sizeOf returns the size of all rules of the groups, estimated for small groups, whose cost is little. It reports
// whether enough work was left to measure them.
func (f *File) sizeOf(groups []uint32) (all size, ok bool) {
	for _, g := range groups {
		start, end := f.GroupRecords(g)
		if octets := f.span(start, end); end-start <= 64 && octets <= 1024 {
			all.wild += uint32(end - start)
			all.octets += octets
			continue
		}
		s := &f.surveys.tallies[g].size
		if !s.known {
			if !f.charge(4 * (end - start)) {
				return size{}, false
			}
			*s = f.measure(start, end)
		}
		all.wild += s.wild
		all.octets += s.octets
	}
	return all, true
}

// span returns the length in the body from the first record's value to the last record's end.
func (f *File) span(start, end int) uint32 { return f.records[end-1].end - f.records[start].value }

// measure returns the size of the rules among the records.
func (f *File) measure(start, end int) size {
	s := size{known: true}
	for i := start; i < end; i++ {
		if r := &f.records[i]; r.kind == KeyAllow || r.kind == KeyDisallow {
			s.octets += r.end - r.value
			s.wild += wildWeight(f.src[r.value:r.end])
		}
	}
	return s
}

// wildWeight returns the cost of a pattern's wildcards, in eighths of a nanosecond for each octet of a path: 0 without
// a `*`. Pieces of 16 octets and more are compared in several steps. From 64 octets on, bytes.Index uses a hash, and
// compares the whole piece where the hashes are equal.
func wildWeight(pattern []byte) (weight uint32) {
	for {
		star := bytes.IndexByte(pattern, '*')
		if star < 0 {
			return weight
		}
		pattern = pattern[star+1:]
		piece := bytes.IndexByte(pattern, '*')
		if piece < 0 {
			piece = len(pattern)
		}
		switch {
		case piece < 16:
			weight = max(weight, 1)
		case piece < 64:
			weight = max(weight, 4)
		default:
			weight = max(weight, uint32(16+piece/2))
		}
	}
}

// charge subtracts units of work and reports whether they were available.
func (f *File) charge(units ...int) bool {
	for _, n := range units {
		f.surveys.work -= int64(n)
	}
	return f.surveys.work >= 0
}

// trialCost returns what the length of a path adds to the cost of trying the rules. Wildcards of the given weight
// search the whole path; other rules compare its beginning.
func trialCost(rules, wild int, path []byte) int {
	return saturated(rules, len(path)/64) + saturated(wild, len(path)/8) + len(path)
}

// saturated returns the product, or more than any allowance where it does not fit.
func saturated(a, b int) int {
	if a > 0 && b > 2*maxSurveyWork/a {
		return 2 * maxSurveyWork
	}
	return a * b
}

// unopposed reports whether the rule decides on the path that it names, because no rule of the other kind matches with
// as great a length. Most rules are unopposed, and few trials show it, since most files have few rules of one kind.
func (f *File) unopposed(groups []uint32, of *record, path []byte) bool {
	length := f.matchLen(of, path)
	if of.kind == KeyAllow {
		length++ // allow wins a tie
	}
	for _, g := range groups {
		start, end := f.GroupRecords(g)
		for i := start; i < end; i++ {
			r := &f.records[i]
			if r.kind != of.kind && (r.kind == KeyAllow || r.kind == KeyDisallow) && f.matchLen(r, path) >= length {
				return false
			}
		}
	}
	return length > 1
}

// winner finds the longest allow and disallow rules of the groups that match the normalised path.
func (f *File) winner(groups []uint32, path []byte) (w winner) {
	for _, g := range groups {
		f.tryGroup(&w, g, path)
	}
	return w
}

// trials are rules prepared for many paths: normalised once, without those that match nothing.
type trials struct {
	allow, disallow []trial
	fixed           int // units to try all of them, without trialCost
	wild            int // weight of their wildcards
}

// trial is a pattern, patterns[from:to], in which runs of `*` are merged. Its length is that of the unmerged pattern.
type trial struct {
	from, to, length uint32
	literal          bool // it has neither `*` nor a final `$`
}

// makeTrials prepares the rules of the groups.
func (f *File) makeTrials(groups []uint32) {
	s := &f.surveys
	s.patterns = s.patterns[:0]
	s.trials = trials{allow: s.trials.allow[:0], disallow: s.trials.disallow[:0]}
	for _, g := range groups {
		start, end := f.GroupRecords(g)
		for i := start; i < end; i++ {
			r := &f.records[i]
			value := f.src[r.value:r.end]
			if r.kind != KeyAllow && r.kind != KeyDisallow || !namesPath(value) {
				continue
			}
			from := len(s.patterns)
			s.patterns = AppendPattern(s.patterns, value, f.dialect)
			s.addTrial(r.kind, from)
			if folder := f.indexFolder(r, value); folder != nil {
				from = len(s.patterns)
				s.patterns = append(AppendPattern(s.patterns, folder, f.dialect), '$')
				s.addTrial(r.kind, from)
			}
		}
	}
}

// addTrial adds the pattern at the end of s.patterns and merges its runs of `*`.
func (s *surveys) addTrial(kind Key, from int) {
	length := uint32(len(s.patterns) - from)
	to, stars := from, 0
	for _, c := range s.patterns[from:] {
		if c == '*' {
			if to > from && s.patterns[to-1] == '*' {
				continue
			}
			stars++
		}
		s.patterns[to] = c
		to++
	}
	s.patterns = s.patterns[:to]
	s.trials.fixed += 1 + 3*stars + (to-from)/16
	s.trials.wild += int(wildWeight(s.patterns[from:]))
	of := &s.trials.disallow
	if kind == KeyAllow {
		of = &s.trials.allow
	}
	*of = append(*of, trial{uint32(from), uint32(to), length, stars == 0 && s.patterns[to-1] != '$'})
}

// allows reports whether the rules allow the path. It tries the rules first that could contradict the expected answer.
func (t *trials) allows(path, patterns []byte, expected bool) bool {
	if expected {
		disallow := longest(t.disallow, path, patterns, 1)
		return disallow == 0 || longest(t.allow, path, patterns, disallow) >= disallow
	}
	allow := longest(t.allow, path, patterns, 1)
	return longest(t.disallow, path, patterns, allow+1) == 0
}

// longest returns the length of the longest pattern of at least the given length that matches the path, 0 if none
// does.
func longest(list []trial, path, patterns []byte, least uint32) (length uint32) {
	for i := range list {
		t := &list[i]
		if t.length < least || t.length <= length {
			continue
		}
		pattern := patterns[t.from:t.to]
		if t.literal {
			// The last octet rejects most rules.
			if len(pattern) > len(path) || pattern[len(pattern)-1] != path[len(pattern)-1] || !bytes.HasPrefix(path, pattern) {
				continue
			}
		} else if !Match(pattern, path) {
			continue
		}
		length = t.length
	}
	return length
}

// rulePath returns the path that a rule names, as it is compared, or nil. It is valid until the next call. In the RFC
// dialect no rule names `/robots.txt`, since it is always allowed.
func (f *File) rulePath(r *record) []byte {
	if value := f.src[r.value:r.end]; f.dialect != RFC && isLiteral(value) {
		return value // most values are paths already
	}
	path, ok := appendRulePath(f.path[:0], f.src[r.value:r.end], f.dialect)
	f.path = path
	if !ok {
		return nil
	}
	if f.dialect == RFC {
		// Without its `*` a value may contain a new escape: `/%4*1`.
		from := len(path)
		f.path = appendNormalPath(path, path)
		path = f.path[from:]
		if isRobots(path) {
			return nil
		}
	}
	return path
}

// isLiteral reports whether a value is a path that needs no normalising and has no wildcard.
func isLiteral(value []byte) bool {
	for _, c := range value {
		if special[c] {
			return false
		}
	}
	return len(value) > 0 && value[0] == '/'
}

// namesPath reports whether a value names a path. A value that begins with neither `/` nor `*` matches nothing.
func namesPath(value []byte) bool { return len(value) > 0 && (value[0] == '/' || value[0] == '*') }

// appendRulePath appends the path that a rule's value names: its pattern without a final `$` and without each `*`. A
// missing leading `/` is added. It reports whether the value names a path.
func appendRulePath(dst, value []byte, d Dialect) ([]byte, bool) {
	if !namesPath(value) {
		return dst, false
	}
	from := len(dst)
	dst = AppendPattern(dst, value, d)
	if dst[len(dst)-1] == '$' {
		dst = dst[:len(dst)-1]
	}
	to := from
	for _, c := range dst[from:] {
		if c != '*' {
			dst[to] = c
			to++
		}
	}
	dst = dst[:to]
	if to == from || dst[from] != '/' {
		dst = append(dst, 0)
		copy(dst[from+1:], dst[from:])
		dst[from] = '/'
	}
	return dst, true
}
