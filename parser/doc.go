// Package parser answers one question: what does a robots.txt file say? It implements all of RFC 9309 and depends on
// the standard library alone, so that any Go program can use it as its robots library.
//
// # For crawlers
//
// [Parse] takes the HTTP status and the body, and returns a [Robots]: an immutable value for any number of goroutines.
//
//	robots := parser.Parse(status, body)
//	if robots.Allows("ExampleBot", "https://example.com/private/page") { … }
//
// [Robots.Test] also returns the deciding rule. docs/parser.md says how to fetch and keep the file, and has a table for
// users of temoto/robotstxt.
//
// # For scanners
//
// A [File] reads one body after the other without allocating, keeps every record, and belongs to one goroutine:
//
//	var file parser.File
//	file.Parse(body)
//	if file.Allows("ExampleBot", "https://example.com/private/page") { … }
//
// Allows takes a URL as people write it. It escapes octets above 0x7F, as user agents do (`/é` becomes `/%C3%A9`), and
// leaves existing escapes as they are. [File.Decide] takes a path as it is compared (see [AppendEscapedPath]). It also
// returns the deciding line and the agent whose groups were followed. Further tokens on the same path cost little.
// Before any rule is read, the HTTP status decides, see [AccessFor].
//
// [File.Record] returns every record as written, sitemaps and other extensions included. [File.Agent] returns the names
// in user-agent lines. [File.AgentSurvey] says whether the rules for an agent block the whole site, a part of it or
// nothing. A [Scanner] returns every line, comments and blank lines included; its lines together are the body.
//
// # Dialects
//
// [Google], the default, decides like Google's open-source matcher, misspellings and quirks included. It does not read
// usage records of drafts ([Key.IsUsage]) as rules; [GoogleExact] does. [RFC] is RFC 9309 without these tolerances.
//
// # Guarantees
//
// Parsing never fails: a line that is no record is skipped. Time and memory grow with the length of the body alone, and
// what a File keeps is bounded (see [File.Complete]). Matching takes at most the product of the lengths of path and
// pattern, without backtracking. A File allocates nothing once it has read a body with as many records, names and
// groups. Reset, however, releases the memory of an unusually large file.
//
// Results of a File are views of the body or of the File. They are valid until its next Parse or Reset, and while the
// body is unchanged. A File may be used by one goroutine at a time, since queries use its scratch memory. For several
// goroutines there is Robots.
package parser
