// Package parser answers one question: what does a robots.txt file say? RFC 9309, all of it, and nothing else. It needs
// the standard library alone, and stands alone: any Go program may use it as its robots library.
//
// # Asking
//
// A [File] reads a body as groups of rules for agents. One File is used for one body after the other:
//
//	var file parser.File
//	file.Parse(body)
//	if file.Allows("ExampleBot", "https://example.com/private/page") { … }
//
// Allows takes a URL as people write it: octets above 0x7F are escaped first, as user agents send them (`/é` is asked as
// `/%C3%A9`), and escapes that are there are left as they are. [File.Decide] says the same of a path, which it takes as it
// is given (see [AppendEscapedPath]), and with it the deciding line and whose group was followed. To ask about
// hundreds of tokens costs little more than to ask about one. Before a file is asked at all, the HTTP status decides, see
// [AccessFor].
//
// # Looking closer
//
// [File.Record] gives every record as written, sitemaps and other extensions included; [File.Agent], whom user-agent lines
// name; [File.AgentSurvey], whether what the file tells an agent amounts to a blocked, a partly blocked or an open site.
// A [Scanner] reads lines, comments and blank ones too, that together are the body: for editors, checkers and teaching.
//
// # Two dialects
//
// [Google] is the default: it decides every case as Google's open-source matcher does, misspellings and quirks included,
// for that is what a site gets. [RFC] is RFC 9309 without them.
//
// # What may be relied on
//
// No body can make the parser fail: what is no record is no record. Time and memory grow with the length of a body alone,
// and what is kept of one is bounded besides (see [File.Complete]); no path and no pattern takes more than the product of
// their lengths, and there is no backtracking. Once a File has met a body of as many records, names and groups as the
// next one, nothing here allocates, unless Reset has given back what a freak needed.
//
// Results are views of the body or of the File: valid until its next Parse or Reset, and as long as the body is left
// unchanged. A File belongs to one goroutine at a time, since asking uses what it remembers of the question before: who
// keeps a File a site for many goroutines puts a mutex beside it.
package parser
