// Package tokens answers one question: whose token is this? It is a table of the crawlers that robots.txt files name:
// their operators, purposes and fallbacks, and the pages that document these.
//
// The table is the embedded text file tokens.txt, whose head describes its format. Load adds a user's own rows in the
// same format.
package tokens

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Token is a crawler's name in robots.txt files, with its facts. Programs rely on its JSON, which `bulkscan tokens`
// prints. Its field names are those of datasets and lists.
type Token struct {
	Name     string   `json:"token"`    // as its operator spells it
	Aliases  []string `json:"aliases"`  // other spellings, which only the lenient reading finds, except InFiles
	Category string   `json:"category"` // search, ai, seo, social, archive; "custom" for a user's row without one
	// training, search, user-fetch, agent, data-provider, ads, preview, platform, seo, other
	Purpose  string `json:"purpose"`
	Operator string `json:"operator"` // the crawler's operator; "unknown" if no page says

	// ProductToken reports whether Name fits RFC 9309 §2.2.1: letters, `-` and `_`. The strict reading never matches
	// other names; see InFiles.
	ProductToken bool     `json:"product_token"`
	HeedsStar    bool     `json:"heeds_star"` // follows the group of `*` if no group names it
	Fallback     []string `json:"fallback"`   // the names it follows, in order, if no group names it
	Chain        []int    `json:"-"`          // Fallback as indices into Registry.Tokens

	Source string `json:"source"` // URL of the page that documents these facts
	// the author of that page: operator or third-party; unverified if no copy of it was read
	SourceKind string `json:"source_kind"`
	Checked    string `json:"checked"` // YYYY-MM-DD, the date of the copy that was read; empty if the copy has none
}

// The kinds of a source. Rows are compared with stored copies of pages, so a date is that of a copy, as the copy or
// its archive states it. A copy without a date leaves the date empty. "Read" means that the copy names the token: the
// page itself, its operator's translation, or an archive's quotation.
const (
	SourceOperator   = "operator"    // a page of the operator, read
	SourceThirdParty = "third-party" // a page of another author, such as a list, read
	SourceUnverified = "unverified"  // no copy that names the token was found; the row comes from that page
)

// InFiles returns the product token by which a group names the crawler: Name, or the first alias that is a product
// token if Name is none (`Linguee` of `Linguee Bot`, which a parser reads as `Linguee`, too). It is "" if there is
// none.
func (t *Token) InFiles() string {
	for _, name := range append([]string{t.Name}, t.Aliases...) {
		if IsProductToken(name) {
			return name
		}
	}
	return ""
}

// Registry is an immutable set of tokens. It is safe for concurrent use.
type Registry struct {
	Version string
	Tokens  []Token

	index index
	near  index // by letters and digits alone

	nearBits [64]uint64 // a bit for the nearSlot of each name in near, which rejects most others
}

// Bounds of a registry file.
const (
	maxFile   = 1 << 20 // bytes of a file
	maxTokens = 1 << 14 // rows; audit keeps indices in 16 bits
	maxName   = 100     // bytes of a name or alias
	maxField  = 500     // bytes of any other field
)

//go:embed tokens.txt
var embedded string

var defaultRegistry = sync.OnceValue(func() *Registry {
	rows, err := read(strings.NewReader(embedded))
	if err == nil {
		var reg *Registry
		if reg, err = New(rows.version, rows.tokens); err == nil {
			return reg
		}
	}
	panic("tokens: the embedded table is broken: " + err.Error())
})

// Default returns the registry of the program.
func Default() *Registry { return defaultRegistry() }

// Load returns the default registry with the rows of r added. A row replaces one of the same name. The version of the
// result is the default's, and eight hexadecimal digits of a hash of the rows. Errors name the line.
func Load(r io.Reader) (*Registry, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read tokens: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("cannot read tokens: more than %d bytes", maxFile)
	}
	own, err := read(strings.NewReader(string(text)))
	if err != nil {
		return nil, fmt.Errorf("cannot read tokens: %w", err)
	}
	base := Default()
	all := slices.Clone(base.Tokens)
	for _, t := range own.tokens {
		if i := base.Lookup(t.Name); i >= 0 {
			all[i] = t
		} else {
			all = append(all, t)
		}
	}
	hash := fnv.New32a()
	_, _ = hash.Write(text) // a hash returns no error
	reg, err := New(fmt.Sprintf("%s+%08x", base.Version, hash.Sum32()), all)
	if err != nil {
		return nil, fmt.Errorf("cannot use tokens: %w", err)
	}
	return reg, nil
}

// Names returns the names in a file of names: one a line, or with commas between them; # begins a comment. isList is
// false if the file is in the form that Load reads.
func Names(text string) (names []string, isList bool) {
	names = strings.FieldsFunc(comments.ReplaceAllString(text, ""), func(r rune) bool {
		return r == '\n' || r == '\r' || r == ','
	})
	return names, len(names) == 0 || !registryForm.MatchString(names[0])
}

var comments = regexp.MustCompile(`(?m)#.*$`)

// registryForm matches the first line of a file in the registry's form: its version, or the names of its columns.
var registryForm = regexp.MustCompile(`^\s*(version\s|name\s*(\||$))`)

// Lookup returns the index of the token with this name, or with this name in files (Token.InFiles), ignoring case, or
// -1.
func (r *Registry) Lookup(name string) int {
	if i, alias := find(&r.index, name); !alias {
		return i
	}
	return -1
}

// Find returns the index of the token with this name or alias, ignoring case, and whether it is an alias; -1 and false
// if there is none. It allocates nothing and costs little more than a comparison.
func (r *Registry) Find(name []byte) (i int, alias bool) { return find(&r.index, name) }

// Near returns the index of the token whose name or alias differs from this one only in case and in octets other than
// letters and digits (`GPT-Bot`, `Claude Bot`), or -1. Text after a `/`, `;` or `(` does not count. Only product tokens
// are returned. It allocates nothing.
//
// Names that differ in one letter are no mistakes as a rule: of 450 in 25,101 real files, most are other crawlers
// (LexiBot and BLEXBot, MSRBOT and msnbot).
func (r *Registry) Near(name []byte) int {
	if len(name) >= nearBegin {
		if slot := nearSlot(letters[name[0]], letters[name[1]], letters[name[2]], letters[name[3]]); slot >= 0 &&
			r.nearBits[slot>>6]>>(slot&63)&1 == 0 {
			return -1
		}
	}
	var kept [maxName]byte
	i, _ := find(&r.near, kept[:lettersOf(kept[:], name)])
	return i
}

// nearBegin is the length of the beginning of a name that nearSlot needs, and so that of the shortest name that is near
// another.
const nearBegin = 4

// nearSlot returns a slot of nearBits for the first letters of a name, -1 if one of them is no letter.
func nearSlot(a, b, c, d byte) int {
	if a-1 >= stop-1 || b-1 >= stop-1 || c-1 >= stop-1 || d-1 >= stop-1 { // 0 or stop
		return -1
	}
	return int((uint32(a)|uint32(b)<<8|uint32(c)<<16|uint32(d)<<24)*0x9E3779B1) >> 20 & 0xFFF
}

// letters maps ASCII letters, in lower case, and digits to themselves, what ends a name to stop, and other octets to 0.
var letters = func() (of [256]byte) {
	for c := range byte(0x80) {
		if l := lower(c); 'a' <= l && l <= 'z' || '0' <= l && l <= '9' {
			of[c] = l
		}
	}
	of['/'], of[';'], of['('] = stop, stop, stop
	return of
}()

const stop = 0xFF

// lettersOf writes the letters of a name to kept, as many as fit, and returns their number.
func lettersOf[T string | []byte](kept []byte, name T) (n int) {
	for i := 0; i < len(name) && letters[name[i]] != stop && n < len(kept); i++ {
		if letter := letters[name[i]]; letter != 0 {
			kept[n] = letter
			n++
		}
	}
	return n
}

// Field is a property for choosing tokens.
type Field func(*Token) string

// Category is a Field.
func Category(t *Token) string { return t.Category }

// Operator is a Field.
func Operator(t *Token) string { return t.Operator }

// Purpose is a Field.
func Purpose(t *Token) string { return t.Purpose }

// Values returns the registry's values of a field, sorted, ignoring case.
func (r *Registry) Values(field Field) []string {
	var values []string
	for i := range r.Tokens {
		if v := field(&r.Tokens[i]); v != "" {
			values = append(values, v)
		}
	}
	slices.SortFunc(values, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return slices.Compact(values)
}

// Named returns the tokens with these names or aliases, each once, in that order; without names, all.
func (r *Registry) Named(names []string) ([]Token, error) {
	if len(names) == 0 {
		return slices.Clone(r.Tokens), nil
	}
	var list []Token
	for _, name := range names {
		id, _ := find(&r.index, name)
		if id < 0 {
			remedy := "bulkscan tokens lists those that there are"
			if like := r.Similar(name); len(like) > 0 {
				remedy = "there are " + strings.Join(like, ", ")
			}
			return nil, fmt.Errorf("%q: no token has this name; %s", clip(name), remedy)
		}
		if !slices.ContainsFunc(list, func(t Token) bool { return t.Name == r.Tokens[id].Name }) {
			list = append(list, r.Tokens[id])
		}
	}
	return list, nil
}

// Similar returns at most ten names of tokens that may have been meant: those that contain the name, are contained in
// it, begin like it, or have it as their operator.
func (r *Registry) Similar(name string) (like []string) {
	const begins, most = 4, 10
	name = strings.ToLower(name)
	if len(name) < 2 || len(name) > 100 {
		return nil
	}
	for i := range r.Tokens {
		t := &r.Tokens[i]
		token := strings.ToLower(t.Name)
		if strings.Contains(token, name) || strings.Contains(name, token) || strings.EqualFold(t.Operator, name) ||
			len(name) >= begins && strings.HasPrefix(token, name[:begins]) {
			like = append(like, t.Name)
		}
	}
	return like[:min(len(like), most)]
}

// New returns the registry of these tokens alone, of which it sets the Chains. It keeps the rows.
func New(version string, rows []Token) (*Registry, error) {
	if len(rows) > maxTokens {
		return nil, fmt.Errorf("more than %d tokens", maxTokens)
	}
	keys := len(rows)
	for _, t := range rows {
		keys += len(t.Aliases)
	}
	reg := &Registry{Version: version, Tokens: rows, index: newIndex(keys), near: newIndex(keys)}
	for i, t := range rows {
		if !reg.index.add(t.Name, i, false) {
			return nil, fmt.Errorf("%q: the name is there twice", t.Name)
		}
	}
	for i, t := range rows {
		for _, alias := range t.Aliases {
			if !reg.index.add(alias, i, alias != t.InFiles()) {
				return nil, fmt.Errorf("%q: the alias %q is there twice", t.Name, alias)
			}
		}
	}
	for i := range rows {
		t := &rows[i]
		t.Chain = make([]int, 0, len(t.Fallback))
		for _, name := range t.Fallback {
			next := reg.Lookup(name)
			if next < 0 {
				return nil, fmt.Errorf("%q: unknown fallback %q", t.Name, name)
			}
			if next == i || slices.Contains(t.Chain, next) {
				return nil, fmt.Errorf("%q: the fallback %q is there twice", t.Name, name)
			}
			t.Chain = append(t.Chain, next)
		}
	}
	reg.indexNear()
	return reg, reg.acyclic()
}

// indexNear fills the index of Near. Among tokens with the same letters and digits the first one is indexed, and names
// go before aliases.
func (r *Registry) indexNear() {
	add := func(name string, token int) {
		var kept [maxName]byte
		if n := lettersOf(kept[:], name); n >= nearBegin && r.Tokens[token].ProductToken {
			r.near.add(string(kept[:n]), token, false)
			slot := nearSlot(kept[0], kept[1], kept[2], kept[3])
			r.nearBits[slot>>6] |= 1 << (slot & 63)
		}
	}
	for i, t := range r.Tokens {
		add(t.Name, i)
	}
	for i, t := range r.Tokens {
		for _, alias := range t.Aliases {
			add(alias, i)
		}
	}
}

// acyclic returns an error for the first token that is its own fallback, over any number of steps.
func (r *Registry) acyclic() error {
	const fresh, open, done = 0, 1, 2
	state := make([]uint8, len(r.Tokens))
	var visit func(i int) error
	visit = func(i int) error {
		if state[i] == open {
			return fmt.Errorf("%q: its fallbacks lead back to it", r.Tokens[i].Name)
		}
		if state[i] == done {
			return nil
		}
		state[i] = open
		for _, next := range r.Tokens[i].Chain {
			if err := visit(next); err != nil {
				return err
			}
		}
		state[i] = done
		return nil
	}
	for i := range r.Tokens {
		if state[i] == fresh {
			if err := visit(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// table is the content of a file, not yet checked against other rows.
type table struct {
	version string
	tokens  []Token
}

// read parses a file. Its header names the columns; only `name` is required.
func read(r io.Reader) (table, error) {
	var out table
	var header []string
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxFile)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if n == 1 {
			line = strings.TrimPrefix(line, "\uFEFF")
		}
		if version, ok := strings.CutPrefix(line, "version "); ok && header == nil {
			out.version = strings.TrimSpace(version)
			continue
		}
		switch {
		case line == "" || line[0] == '#':
		case header == nil:
			header = split(line, "|")
			if err := checkHeader(header); err != nil {
				return table{}, fmt.Errorf("line %d: %w", n, err)
			}
		default:
			t, err := row(header, split(line, "|"))
			if err != nil {
				return table{}, fmt.Errorf("line %d: %w", n, err)
			}
			out.tokens = append(out.tokens, t)
		}
	}
	if err := lines.Err(); err != nil {
		return table{}, err
	}
	if header == nil {
		return table{}, errors.New("there is no header line")
	}
	return out, nil
}

var columns = []string{"name", "aliases", "category", "purpose", "operator", "*", "fallback", "source", "kind",
	"checked"}

func checkHeader(header []string) error {
	for i, column := range header {
		if !slices.Contains(columns, column) {
			return fmt.Errorf("unknown column %q (known: %s)", clip(column), strings.Join(columns, ", "))
		}
		if slices.Contains(header[:i], column) {
			return fmt.Errorf("the column %q is there twice", column)
		}
	}
	if !slices.Contains(header, "name") {
		return errors.New("there is no column `name`")
	}
	return nil
}

// row makes a Token from a line's fields.
func row(header, fields []string) (Token, error) {
	if len(fields) != len(header) {
		return Token{}, fmt.Errorf("%d fields under %d columns", len(fields), len(header))
	}
	t := Token{Category: "custom", Operator: "unknown", Purpose: "other", HeedsStar: true, SourceKind: SourceUnverified,
		Aliases: []string{}, Fallback: []string{}}
	for i, value := range fields {
		if err := checkText(value, maxField); err != nil {
			return Token{}, fmt.Errorf("column %s: %w", header[i], err)
		}
		if value == "" {
			continue
		}
		switch header[i] {
		case "name":
			t.Name = value
		case "aliases":
			t.Aliases = split(value, ",")
		case "category":
			t.Category = value
		case "purpose":
			t.Purpose = value
		case "operator":
			t.Operator = value
		case "*":
			if value != "yes" && value != "no" {
				return Token{}, fmt.Errorf("column *: %q is neither yes nor no", clip(value))
			}
			t.HeedsStar = value == "yes"
		case "fallback":
			t.Fallback = split(value, ",")
		case "source":
			t.Source = value
		case "kind":
			if value != SourceOperator && value != SourceThirdParty && value != SourceUnverified {
				return Token{}, fmt.Errorf("column kind: %q is none of %s, %s, %s", clip(value), SourceOperator, SourceThirdParty,
					SourceUnverified)
			}
			t.SourceKind = value
		case "checked":
			t.Checked = value
		}
	}
	for _, name := range append([]string{t.Name}, t.Aliases...) {
		if name == "" || name == "*" {
			return Token{}, fmt.Errorf("%q is no name", name)
		}
		if err := checkText(name, maxName); err != nil {
			return Token{}, fmt.Errorf("name %q: %w", clip(name), err)
		}
	}
	t.ProductToken = IsProductToken(t.Name)
	return t, nil
}

func checkText(s string, most int) error {
	switch {
	case len(s) > most:
		return fmt.Errorf("longer than %d bytes", most)
	case !utf8.ValidString(s):
		return errors.New("not UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return errors.New("contains a control character")
	}
	return nil
}

// split splits s at each separator and trims the pieces.
func split(s, separator string) []string {
	pieces := strings.Split(s, separator)
	for i := range pieces {
		pieces[i] = strings.TrimSpace(pieces[i])
	}
	return pieces
}

// clip bounds the input that an error repeats.
func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
