package main

import (
	"maps"
	"slices"

	"github.com/bulkscan/bulkscan/cmd/bulkscan/options"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink/jsonlines"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/terminal"
	"github.com/bulkscan/bulkscan/warc/replay"
)

// rules say what the flags of all commands have in common.
var rules = &options.Rules{
	Tables:      []string{"scan", "nightly"},
	CommandLine: []string{"help", "json", "config"},
	Actions: []string{"release", "discard", "withdraw", "reason", "prune", "accept-list", "accept-pruning", "restart",
		"repair", "status", "print-config", "dry-run"},
	Choices: map[string][]string{
		"format":     inputs.FormatNames,
		"by":         replay.Bys,
		"progress":   terminal.ProgressForms,
		"log-format": terminal.LogFormats,
		"log-level":  terminal.LogLevels,
		"scheme":     {"https", "http"},
		"tls-min":    slices.Sorted(maps.Keys(tlsVersions)),
		"tables":     schema.AllTables,
		"fields":     append([]string{jsonlines.Short}, jsonlines.Fields()...),
		"dialect":    {parser.Google.String(), parser.RFC.String()},
	},
}
