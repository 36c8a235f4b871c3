package parser

import "bytes"

// SameInRFC reports whether the RFC dialect finds the same groups and the same effect of their rules in the body. False
// means that it may not: a tolerance of the Google dialect was used, or a value is compared otherwise. It is for a File
// in the Google dialect, and true in the RFC dialect. It adds little to the cost of Survey.
func (f *File) SameInRFC() bool {
	f.tallyGroups()
	switch {
	case f.dialect == RFC:
		return true
	case f.dialect != Google, f.dropped, f.surveys.tolerated, hasLongLine(f.src):
		return false
	case !hasEscape(f.src) && !hasDollar(f.src):
		return true
	}
	for i := range f.records { // they may be in a comment or a URL
		r := &f.records[i]
		if value := f.src[r.value:r.end]; r.kind-KeyAllow <= KeyDisallow-KeyAllow && (hasEscape(value) || hasDollar(value)) {
			return false
		}
	}
	return true
}

// tolerates reports whether the RFC dialect reads a record of a group otherwise: its key is misspelled; text follows
// `*` and white space, which Google ignores; or it is a rule with one of two special paths. It does not look for
// escapes and `$`.
func (f *File) tolerates(r *record) bool {
	value := f.src[r.value:r.end]
	switch {
	case r.flags&FlagTypo != 0:
		return true
	case r.kind == KeyUserAgent:
		return len(value) > 1 && value[0] == '*'
	case r.kind == KeyAllow, r.kind == KeyDisallow:
		return namesRobots(value) || f.indexFolder(r, value) != nil
	}
	return false
}

// hasLongLine reports whether a line of the body may be longer than maxLine, after which the Google dialect cuts it.
func hasLongLine(body []byte) bool {
	for len(body) > maxLine {
		end := bytes.LastIndexByte(body[:maxLine+1], '\n')
		if end < 0 {
			return true
		}
		body = body[end+1:]
	}
	return false
}

// hasEscape reports whether a text has an escape that the RFC dialect may decode: of an unreserved octet, or
// interrupted by a wildcard.
func hasEscape(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '%')
		if i < 0 {
			return false
		}
		if text = text[i+1:]; len(text) < 2 || !isHex(text[0]) || !isHex(text[1]) || isUnreserved(unhex(text[0])<<4|
			unhex(text[1])) {
			return true
		}
	}
}

// hasDollar reports whether a text has a `$` before the end of a line. By the RFC it is special only at the end of a
// value (§2.2.3); elsewhere it is compared as `%24`.
func hasDollar(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '$')
		if i < 0 {
			return false
		}
		if text = text[i+1:]; len(text) > 0 && text[0] != '\n' && text[0] != '\r' {
			return true
		}
	}
}

// namesRobots reports whether a value without escapes names `/robots.txt`, which the RFC dialect always allows: see
// rulePath.
func namesRobots(value []byte) bool {
	i := 0
	if bare := bytes.TrimLeft(value, "*"); len(bare) < len(value) && len(bare) > 0 && bare[0] != '/' {
		i = 1 // a missing slash is added
	}
	for at, c := range value {
		switch {
		case c == '*' || c == '$' && at == len(value)-1:
		case i == len(robots) || c != robots[i]:
			return false
		default:
			i++
		}
	}
	return i == len(robots)
}
