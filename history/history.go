// Package history answers one question: what did each site say, night after night? It keeps a ledger below the folder
// history of a dataset: episodes, in which a site has one policy, and gaps, in which nothing was learned. The ledger is
// derived from the scans and can be deleted.
//
// policy.go says what a policy is. From the scans of a night, package units chooses one observation for each site;
// night.go sorts them. merge.go merges a night into the open episodes, by rules without I/O. read.go reads the
// observations of a scan. ledger.go has Update and Rebuild, follow.go the choice of scans, draft.go the merge of files,
// checkpoint.go the states that spare merging nights again, and files.go the record and its tables. check.go compares
// the ledger with its record and the scans. story.go reports the ledger's entries of one host, and change.go adds what
// its stored files say. again.go judges stored files by another judge, and prune.go keeps the facts about nights that
// are deleted for their age.
package history

import "time"

// Date is a scan's date, in days since 1970-01-01. 0 is none.
type Date int32

// ParseDate parses a date of the form YYYY-MM-DD.
func ParseDate(text string) (Date, error) {
	t, err := time.Parse(time.DateOnly, text)
	return Date(t.Unix() / (24 * 60 * 60)), err
}

// String has the form YYYY-MM-DD; it is "" for 0.
func (d Date) String() string {
	if d == 0 {
		return ""
	}
	return time.Unix(int64(d)*24*60*60, 0).UTC().Format(time.DateOnly)
}

// MarshalText implements encoding.TextMarshaler, for JSON.
func (d Date) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Source says who made an observation, and who judged it. The observations of a scan share it.
type Source struct {
	Observer string // commit.Observer in one line
	Judge    string // versions of the registry and of the rules
}

// Observation is what one night found at one site.
type Observation struct {
	Site      int64 // see schema.SiteID
	Host      string
	Port      int32
	Requested string
	Finding   string // or Carried
	Policy    int64  // id; of no meaning if the finding is a gap
	Body      int64  // hash; 0 without a body
	Unmanaged int64  // of a file with rules, as Episode.Unmanaged
	From      *Source
}

// Episode is a row of the table history: a time in which a site had one policy, by one observer.
type Episode struct {
	Site         int64  `json:"site,string" parquet:"site" stats:"y" about:"id of host, port and requested" example:"-4265267296055464877"`
	Host         string `json:"host" parquet:"host,plain" about:"as in sites" example:"www.example.co.uk"`
	Port         int32  `json:"port" parquet:"port" about:"as in sites; 443 for captures of port 80" example:"443"`
	Requested    string `json:"requested" parquet:"requested,dict" about:"as in sites; auto for captures of archives" example:"auto"`
	Policy       int64  `json:"policy_id,string" parquet:"policy_id" about:"key of history_policies; the one of sites names a row of policies" example:"6151466271542271102"`
	ValidFrom    Date   `json:"valid_from" parquet:"valid_from,date" about:"first night with the policy" example:"2026-11-21"`
	PreviousLast Date   `json:"previous_last,omitzero" parquet:"previous_last,optional,date" about:"last night of the episode before: the change lies after it, and not after valid_from; null for a site's first episode" example:"2026-11-19"`
	ValidTo      Date   `json:"valid_to" parquet:"valid_to,date" about:"last night with the policy" example:"2026-12-24"`
	Observations int32  `json:"observations" parquet:"observations" about:"nights with the policy" example:"33"`
	Failures     int32  `json:"failures" parquet:"failures" about:"nights between valid_from and valid_to that learned nothing, without nights on which the site was not listed" example:"1"`
	Pending      int32  `json:"pending" parquet:"pending" about:"such nights after valid_to, until the next episode" example:"0"`
	Bodies       int32  `json:"bodies" parquet:"bodies" about:"1 + changes of the body" example:"2"`
	LastBody     int64  `json:"last_body,string" parquet:"last_body" about:"hash of the last body, as body_hash in sites; 0 without one" example:"-4265267296055464877"`
	Unmanaged    int64  `json:"unmanaged_policy_id,string" parquet:"unmanaged_policy_id,dict" about:"policy_id in sites of the last file without the blocks that a CDN manages; 0 without rules" example:"6151466271542271102"`
	Cause        Cause  `json:"cause" parquet:"cause,dict" about:"why it began: first, policy, managed, presence, refusal, observer, unknown_judge" example:"policy"`
	Observer     string `json:"observer" parquet:"observer,dict" about:"who made the observations" example:"live bulkscan any https+http HTTP/1.1"`
	Judge        string `json:"judge" parquet:"judge,dict" about:"versions of the registry, of the check and of how files are read, by which policy_id is" example:"7 1.0.0+2"`
}

// Gap is a row of the table gaps: successive nights on which nothing was learned about a site, for one reason.
type Gap struct {
	Site   int64  `json:"site,string" parquet:"site" stats:"y" about:"as in history" example:"-4265267296055464877"`
	Class  string `json:"class" parquet:"class,dict" about:"unlisted; carried, where an archive repeats an earlier file; or a finding: not_asked, challenged, rate_limited, unreachable, server_error" example:"unreachable"`
	First  Date   `json:"first" parquet:"first,date" about:"first night" example:"2026-11-20"`
	Last   Date   `json:"last" parquet:"last,date" about:"last night" example:"2026-11-20"`
	Nights int32  `json:"nights" parquet:"nights" about:"nights of the ledger from first to last" example:"1"`
}

// Cause says why an episode began, or what a merge did.
type Cause string

// The causes.
const (
	First    Cause = "first"  // nothing is known of the time before
	ByPolicy Cause = "policy" // other rules
	// only the blocks that a delivery network manages: without them, both files have the same policy
	ByManaged  Cause = "managed"
	ByPresence Cause = "presence" // another class
	ByRefusal  Cause = "refusal"  // the site began or ceased to refuse
	ByObserver Cause = "observer" // another observer; no transition
	// another judge, which has not judged the earlier files: they are not stored; no transition
	UnknownJudge Cause = "unknown_judge"
)
