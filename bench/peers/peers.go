package main

import (
	"bytes"

	benjaminestes "github.com/benjaminestes/robots/v2"
	"github.com/jimsmart/grobotstxt"
	samclarke "github.com/samclarke/robotstxt"
	temoto "github.com/temoto/robotstxt"

	"github.com/bulkscan/bulkscan/parser"
)

// Body is one robots.txt file, in both forms that parsers ask for, so that none pays for a conversion.
type Body struct {
	Bytes []byte
	Text  string
}

// Questions are what is asked of every file: may this token crawl this path? No tokens or no paths ask nothing.
type Questions struct{ Tokens, Paths []string }

// Len is the number of answers.
func (q Questions) Len() int { return len(q.Tokens) * len(q.Paths) }

// Judge reads one file and writes an answer to each question into allowed, the paths of the first token first. It may
// keep memory between files and belongs to one goroutine. An error says that the parser refuses the file: then there are
// no answers. Some parsers panic.
type Judge func(body *Body, allowed []bool) error

// Peer is a parser as it is used here: by the fastest way through its public functions.
type Peer struct {
	Name   string
	Module string // the path by which the build knows its version
	Way    string // how it is asked
	New    func(Questions) Judge
}

// bulkscan is what the others are compared with.
var bulkscan = Peer{
	Name:   "bulkscan/parser",
	Module: "github.com/bulkscan/bulkscan",
	Way:    "one `parser.File` for all files: `Parse`, then `Decide` for each token and path",
	New: func(q Questions) Judge {
		var file parser.File
		paths := make([][]byte, len(q.Paths))
		for i, path := range q.Paths {
			paths[i] = []byte(path)
		}
		return func(body *Body, allowed []bool) error {
			file.Parse(body.Bytes)
			i := 0
			for _, token := range q.Tokens {
				for _, path := range paths {
					allowed[i] = file.Decide(token, path).Allow
					i++
				}
			}
			return nil
		}
	},
}

// temotoName names the peer that a claim is made about.
const temotoName = "temoto/robotstxt"

// peers are the other robots.txt parsers in pure Go that the module proxy had.
var peers = []Peer{
	{
		Name:   temotoName,
		Module: "github.com/temoto/robotstxt",
		Way:    "`FromBytes` once a file, `FindGroup` once a token, `Group.Test` for each path",
		New: func(q Questions) Judge {
			return func(body *Body, allowed []bool) error {
				data, err := temoto.FromBytes(body.Bytes)
				if err != nil {
					return err
				}
				i := 0
				for _, token := range q.Tokens {
					group := data.FindGroup(token)
					for _, path := range q.Paths {
						allowed[i] = group.Test(path)
						i++
					}
				}
				return nil
			}
		},
	},
	{
		Name:   "jimsmart/grobotstxt",
		Module: "github.com/jimsmart/grobotstxt",
		Way:    "`Parse` once a file, with a handler that passes each line on to one reused `RobotsMatcher` for each token and path",
		New:    newGrobotstxt,
	},
	{
		Name:   "benjaminestes/robots",
		Module: "github.com/benjaminestes/robots/v2",
		Way:    "`From` once a file, `Tester` once a token, which is called for each path",
		New: func(q Questions) Judge {
			var reader bytes.Reader
			return func(body *Body, allowed []bool) error {
				reader.Reset(body.Bytes)
				file, err := benjaminestes.From(200, &reader)
				if err != nil {
					return err
				}
				i := 0
				for _, token := range q.Tokens {
					test := file.Tester(token)
					for _, path := range q.Paths {
						allowed[i] = test(path)
						i++
					}
				}
				return nil
			}
		},
	},
	{
		Name:   "samclarke/robotstxt",
		Module: "github.com/samclarke/robotstxt",
		Way:    "`Parse` once a file, `IsAllowed` for each token and path, with URLs that have no host to be compared",
		New: func(q Questions) Judge {
			return func(body *Body, allowed []bool) error {
				file, err := samclarke.Parse(body.Text, "")
				if err != nil {
					return err
				}
				i := 0
				for _, token := range q.Tokens {
					for _, path := range q.Paths {
						if allowed[i], err = file.IsAllowed(token, path); err != nil {
							return err
						}
						i++
					}
				}
				return nil
			}
		},
	},
}

// newGrobotstxt asks grobotstxt all questions in one parse. Its own function, AgentAllowed, parses the file anew for each
// question, as Google's library in C++ does. But what it parses with is public, and so is the matcher that it drives
// line by line, so several matchers can be driven at once.
func newGrobotstxt(q Questions) Judge {
	var matchers []*grobotstxt.RobotsMatcher
	for _, token := range q.Tokens {
		for _, path := range q.Paths {
			// To ask about an empty file is the one public way to tell a matcher its token and path. It keeps them.
			matcher := grobotstxt.NewRobotsMatcher()
			matcher.AgentAllowed("", token, path)
			matchers = append(matchers, matcher)
		}
	}
	var handler grobotstxt.ParseHandler = fan(matchers)
	if len(matchers) == 1 {
		handler = matchers[0]
	}
	return func(body *Body, allowed []bool) error {
		grobotstxt.Parse(body.Text, handler)
		for i, matcher := range matchers {
			allowed[i] = !matcher.Disallowed()
		}
		return nil
	}
}

// fan passes on what a RobotsMatcher listens to; an empty one only parses. The methods that are empty here are empty
// there too.
type fan []*grobotstxt.RobotsMatcher

func (f fan) HandleRobotsStart() {
	for _, m := range f {
		m.HandleRobotsStart()
	}
}

func (f fan) HandleUserAgent(line int, value string) {
	for _, m := range f {
		m.HandleUserAgent(line, value)
	}
}

func (f fan) HandleAllow(line int, value string) {
	for _, m := range f {
		m.HandleAllow(line, value)
	}
}

func (f fan) HandleDisallow(line int, value string) {
	for _, m := range f {
		m.HandleDisallow(line, value)
	}
}

func (f fan) HandleRobotsEnd()                        {}
func (f fan) HandleSitemap(int, string)               {}
func (f fan) HandleUnknownAction(int, string, string) {}

// lineLoop is the yardstick: it looks for line ends and does nothing else, whatever it is asked.
var lineLoop = Peer{
	Name: "line loop",
	Way:  "`bytes.IndexByte(body, '\\n')` from line to line, and no answer",
	New: func(Questions) Judge {
		return func(body *Body, _ []bool) error {
			for rest := body.Bytes; ; lines++ {
				i := bytes.IndexByte(rest, '\n')
				if i < 0 {
					return nil
				}
				rest = rest[i+1:]
			}
		}
	},
}

// lines keeps the compiler from leaving the loop out.
var lines int
