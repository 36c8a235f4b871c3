package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
)

func (a *app) statsCommand() *cobra.Command {
	var scanID, tokenFile string
	c := &cobra.Command{
		Use:   "stats DIR",
		Short: "Compute the statistics tables of a dataset again",
		Long: `stats computes token_stats and record_stats of one scan from what is committed, and replaces the ones before. A scan
does this itself when it is complete; stats is for a scan that was interrupted and will not be resumed, and for other
--tokens: with a list of names, token_stats has no rows but theirs. While the scan is written or compacted it is refused: bulkscan summary counts
at any time, and writes nothing.`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return a.interruptible(c.Context(), func(ctx context.Context) error {
				st, scans, err := a.openScan(ctx, args[0], scanChoice{id: scanID})
				if err != nil {
					return err
				}
				o, err := a.reportOptions(tokenFile)
				if err != nil {
					return err
				}
				return computeStats(ctx, st, scans.chosen.ScanID, o)
			})
		},
	}
	c.Flags().StringVar(&scanID, "scan-id", "", "the scan (default: that of the newest date; of several the one that started last)")
	addCountedTokens(c.Flags(), &tokenFile)
	return c
}

// computeStats is report.Stats alone with the scan.
func computeStats(ctx context.Context, st store.Store, scanID string, o report.Options) (err error) {
	lock, err := sink.LockStats(ctx, st, scanID)
	if held, ok := errors.AsType[*commit.HeldError](err); ok && held.Holder.Doing == "" {
		return fmt.Errorf("%w; it computes its statistics itself when it is complete, and bulkscan summary counts meanwhile", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := report.Stats(ctx, st, scanID, o); err != nil {
		return err
	}
	if err := report.WriteReadme(ctx, st); !errors.Is(err, store.ErrNotExist) { // no scan is complete
		return err
	}
	return nil
}

// addCountedTokens adds --tokens to the flags of a command that counts.
func addCountedTokens(flags *pflag.FlagSet, value *string) {
	flags.StringVar(value, "tokens", "", "LIST or FILE: count only these tokens, names with commas between them or a file of them, one a line; a file in the registry's form adds its tokens to the registry, as scan --tokens does")
}

// reportOptions reads a dataset with the registry of --tokens, and warns on standard error.
func (a *app) reportOptions(counted string) (report.Options, error) {
	registry, only, err := countedTokens(counted)
	if err != nil {
		return report.Options{}, err
	}
	log, err := newLogger(a.stderr, "text", "info")
	if err != nil {
		return report.Options{}, err
	}
	return report.Options{Registry: registry, Only: only, ToolVersion: toolVersion(), Log: log}, nil
}

// maxNames bounds a file of names, in bytes.
const maxNames = 1 << 20

// countedTokens reads --tokens of a command that counts: the registry, and the tokens that count; nil is all.
func countedTokens(value string) (*tokens.Registry, []string, error) {
	if value == "" {
		return tokens.Default(), nil, nil
	}
	from, names := "--tokens", strings.Split(value, ",")
	if info, err := os.Stat(value); err == nil && !info.IsDir() {
		file, err := os.Open(value)
		if err != nil {
			return nil, nil, usagef("--tokens: cannot read %s: %w", clipped(value), why(err))
		}
		text, err := io.ReadAll(io.LimitReader(file, maxNames+1))
		switch err = errors.Join(err, file.Close()); {
		case err != nil:
			return nil, nil, usagef("--tokens: cannot read %s: %w", clipped(value), why(err))
		case len(text) > maxNames:
			return nil, nil, usagef("--tokens: %s is longer than %d bytes", clipped(value), maxNames)
		}
		names = strings.FieldsFunc(comments.ReplaceAllString(string(text), ""), func(r rune) bool { return r == '\n' || r == '\r' || r == ',' })
		if len(names) > 0 && registryForm.MatchString(names[0]) {
			registry, err := (&fetchFlags{tokens: value}).registry()
			return registry, nil, err
		}
		from += " " + clipped(value)
	} else if strings.ContainsAny(value, `/\`) || strings.HasSuffix(value, ".txt") {
		return nil, nil, usagef("--tokens: cannot read %s: no such file", clipped(value))
	}
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	if len(names) == 0 {
		return nil, nil, usagef("%s: no name in it", from)
	}
	list, err := tokens.Default().Named(names)
	if err != nil {
		return nil, nil, usagef("%s: %w", from, err)
	}
	var only []string
	for i := range list {
		only = append(only, list[i].Name)
	}
	return tokens.Default(), only, nil
}

var comments = regexp.MustCompile(`(?m)#.*$`)

// registryForm matches the first line of a file in the registry's form: its version, or the names of its columns.
var registryForm = regexp.MustCompile(`^\s*(version\s|name\s*(\||$))`)
