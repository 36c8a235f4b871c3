package parser

// Dialect selects how a file is read.
type Dialect uint8

// The dialects. The zero value is Google.
const (
	// as Google's open-source matcher, typos and quirks included, but for usage records (Key.IsUsage)
	Google      Dialect = iota
	RFC                 // RFC 9309, as its authors' tests read it
	GoogleExact         // as Google, usage records included: they are rules by their first letters
)

// known returns the dialect, or Google for an invalid value.
func (d Dialect) known() Dialect {
	if d == RFC || d == GoogleExact {
		return d
	}
	return Google
}

// String returns the name that command lines use: google for both readings of Google, and rfc.
func (d Dialect) String() string {
	if d == RFC {
		return "rfc"
	}
	return "google"
}

// Key is what the text before the separator means.
type Key uint8

// The keys. The zero value is KeyNone.
const (
	KeyNone               Key = iota // a line without a separator, or with nothing before it
	KeyUserAgent                     // RFC 9309 §2.2.1
	KeyAllow                         // RFC 9309 §2.2.2
	KeyDisallow                      // RFC 9309 §2.2.2
	KeySitemap                       // sitemaps.org; also named by RFC 9309 §2.2.4
	KeyCrawlDelay                    // seconds between two requests
	KeyRequestRate                   // documents per time
	KeyVisitTime                     // hours in which crawlers may visit
	KeyHost                          // the preferred mirror (Yandex)
	KeyCleanParam                    // query parameters to ignore (Yandex)
	KeyContentSignal                 // contentsignals.org
	KeyIndexNowKey                   // indexnow.org
	KeyContentUsage                  // IETF AIPREF
	KeyLicense                       // Really Simple Licensing
	KeyRevisitAfter                  // days until the next visit
	KeyDomain                        // the preferred domain
	KeySchemamap                     // an index of structured data (NLWeb)
	KeyAllowAITraining               // draft-canel-robots-ai-control; not in GoogleExact
	KeyDisallowAITraining            // as KeyAllowAITraining
	KeyNoindex                       // never standard; Google dropped it in 2019
	KeyNofollow                      // as noindex
	KeyNoarchive                     // as noindex
	KeyUnknown                       // anything else before a colon
	NumKeys
)

var keyNames = [NumKeys]string{
	KeyUserAgent: "user-agent", KeyAllow: "allow", KeyDisallow: "disallow", KeySitemap: "sitemap",
	KeyCrawlDelay: "crawl-delay", KeyRequestRate: "request-rate", KeyVisitTime: "visit-time", KeyHost: "host",
	KeyCleanParam: "clean-param", KeyContentSignal: "content-signal", KeyIndexNowKey: "indexnow-key",
	KeyContentUsage: "content-usage", KeyLicense: "license", KeyRevisitAfter: "revisit-after", KeyDomain: "domain",
	KeySchemamap: "schemamap", KeyAllowAITraining: "allowaitraining", KeyDisallowAITraining: "disallowaitraining",
	KeyNoindex: "noindex", KeyNofollow: "nofollow", KeyNoarchive: "noarchive",
	KeyNone: "none", KeyUnknown: "unknown",
}

// String returns the key as its specification spells it, in lower case; "none" and "unknown" for the other two.
func (k Key) String() string {
	if k < NumKeys {
		return keyNames[k]
	}
	return "unknown"
}

// Class groups keys by their standing.
type Class uint8

// The classes. The zero value is ClassInvalid.
const (
	ClassInvalid   Class = iota // no key at all
	ClassCore                   // user-agent, allow, disallow: they alone form groups
	ClassExtension              // records that other documents than RFC 9309 define
	ClassLegacy                 // noindex and its like, which no crawler supports any longer
	ClassUnknown                // anything else
)

// String returns invalid, core, extension, legacy or unknown.
func (c Class) String() string {
	if c <= ClassUnknown {
		return [...]string{"invalid", "core", "extension", "legacy", "unknown"}[c]
	}
	return "invalid"
}

// Class returns the standing of the key.
func (k Key) Class() Class {
	switch {
	case k == KeyNone:
		return ClassInvalid
	case k <= KeyDisallow:
		return ClassCore
	case k <= KeyDisallowAITraining:
		return ClassExtension
	case k <= KeyNoarchive:
		return ClassLegacy
	}
	return ClassUnknown
}

// IsUsage reports whether the key states a preference on the use of content, by a draft, but begins like a rule's key.
// Google's code reads such a record as a rule.
func (k Key) IsUsage() bool { return k == KeyAllowAITraining || k == KeyDisallowAITraining }

// Flags are further facts about a record.
type Flags uint8

// The flags.
const (
	FlagTypo    Flags = 1 << iota // the key was accepted only by an undocumented tolerance
	FlagOrphan                    // an allow or disallow before any user-agent line: ignored
	FlagNoColon                   // white space in place of the colon (always with FlagTypo)
)

// tolerated are the spellings that Google's code accepts as a key. They match as prefixes.
var tolerated = [...]struct {
	prefix string
	key    Key
}{
	{"user-agent", KeyUserAgent}, {"useragent", KeyUserAgent}, {"user agent", KeyUserAgent},
	{"allow", KeyAllow},
	{"disallow", KeyDisallow}, {"dissallow", KeyDisallow}, {"dissalow", KeyDisallow},
	{"disalow", KeyDisallow}, {"diasllow", KeyDisallow}, {"disallaw", KeyDisallow},
	{"sitemap", KeySitemap}, {"site-map", KeySitemap},
}

// startsKey holds the first octets of all known keys and their misspellings.
var startsKey = func() (is [256]bool) {
	for _, name := range keyNames[KeyUserAgent:KeyUnknown] {
		is[name[0]], is[name[0]-0x20] = true, true
	}
	return is
}()

// keyOf returns the meaning of a trimmed, non-empty key in the dialect.
func keyOf(key []byte, d Dialect) (Key, Flags) {
	if !startsKey[key[0]] {
		return KeyUnknown, 0
	}
	first := lower(key[0])
	for k := KeyUserAgent; k < KeyUnknown; k++ {
		if keyNames[k][0] == first && equalFold(key, keyNames[k]) && (d != GoogleExact || !k.IsUsage()) {
			return k, 0
		}
	}
	if d != RFC {
		if i := toleratedAs(key); i >= 0 {
			return tolerated[i].key, FlagTypo
		}
	}
	return KeyUnknown, 0
}

// toleratedAs returns the index of the spelling with which a key begins, -1 for none.
func toleratedAs(key []byte) int {
	first := lower(key[0])
	for i := range tolerated {
		t := &tolerated[i]
		if t.prefix[0] == first && len(key) >= len(t.prefix) && equalFold(key[:len(t.prefix)], t.prefix) {
			return i
		}
	}
	return -1
}

// IsPrefixed reports whether Google's code reads the record only because its key begins with another key, as `allowed`
// begins with `allow`.
func (r *Record) IsPrefixed() bool {
	if r.Flags&FlagTypo == 0 || r.Flags&FlagNoColon != 0 {
		return false
	}
	i := toleratedAs(r.KeyText)
	return i >= 0 && len(r.KeyText) > len(tolerated[i].prefix)
}

// equalFold reports whether a equals b, ignoring the case of ASCII letters. strings.EqualFold would also fold Unicode:
// U+212A, the Kelvin sign, to k.
func equalFold[A, B []byte | string](a A, b B) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if a[i] != b[i] && lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}
