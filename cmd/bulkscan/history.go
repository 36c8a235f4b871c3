package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/internal/store"
)

func (a *app) historyCommand() *cobra.Command {
	var rebuild bool
	c := &cobra.Command{
		Use:   "history OUT [HOST]",
		Short: "Tell what a site's file said, night after night",
		Long: `history tells when the policy of a site changed, and why: by its rules, by a block that a delivery network manages, by
presence or refusal. A change lies between two nights; nights on which nothing was learned are named. OUT is a folder, or
s3://BUCKET/PREFIX.

It reads the ledger below OUT/history. --rebuild derives that from all complete scans of the observer of the newest
date, and from archives.`,
		Example: `  bulkscan history out --rebuild
  bulkscan history out www.example.com`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 && !rebuild {
				return usagef("name a HOST, or give --rebuild")
			}
			return a.interruptible(c.Context(), func(ctx context.Context) error {
				st, err := openDataset(args[0])
				if err != nil {
					return err
				}
				if rebuild {
					if err := a.rebuildHistory(ctx, st, args[0]); err != nil {
						return err
					}
				}
				if len(args) == 1 {
					return nil
				}
				return a.tellHistory(ctx, st, args[0], args[1])
			})
		},
	}
	c.Flags().BoolVar(&rebuild, "rebuild", false, "derive the ledger anew from the scans")
	return c
}

func (a *app) rebuildHistory(ctx context.Context, st store.Store, dir string) error {
	log, err := newLogger(a.stderr, "text", "info")
	if err != nil {
		return err
	}
	err = history.Rebuild(ctx, st, history.Options{ToolVersion: toolVersion(), Progress: func(m history.Merged) {
		log.Info("night merged", "date", m.Date, "observed", m.Observations, "causes", m.Causes, "gaps", m.Gaps, "archive_disagreements", m.Disagree)
	}})
	if errors.Is(err, history.ErrNoScan) {
		return noScan(dir)
	}
	return err
}

func (a *app) tellHistory(ctx context.Context, st store.Store, dir, entry string) error {
	o, err := origin.Parse(entry)
	if err != nil {
		return usage(err)
	}
	stories, err := history.Stories(ctx, st, o.Host())
	if errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("%s has no history; `bulkscan history %s --rebuild` derives it", clipped(dir), clipped(dir))
	}
	if err != nil {
		return err
	}
	if len(stories) == 0 {
		return fmt.Errorf("%s was never observed", clipped(o.Host()))
	}
	w := bufio.NewWriter(a.stdout)
	for i := range stories {
		writeStory(w, &stories[i])
	}
	return w.Flush()
}

// writeStory prints a site's episodes and gaps by date. Texts of the ledger come from the network, so they are escaped.
func writeStory(w io.Writer, s *history.Story) {
	fmt.Fprintf(w, "%s port %d (%s)\n", printable.Line(s.Host), s.Port, printable.Line(s.Requested))
	gaps := s.Gaps
	gapsBefore := func(date history.Date) {
		for ; len(gaps) > 0 && (date == 0 || gaps[0].First < date); gaps = gaps[1:] {
			fmt.Fprintf(w, "    %s  %s\n", span(gaps[0].First, gaps[0].Last), printable.Line(gaps[0].Class))
		}
	}
	for i := range s.Episodes {
		e := &s.Episodes[i]
		gapsBefore(e.ValidFrom)
		fmt.Fprintf(w, "  %s  %s\n", span(e.ValidFrom, e.ValidTo), printable.Line(policyText(&e.What)))
		fmt.Fprintf(w, "      %s\n", printable.Line(beginning(e)))
	}
	gapsBefore(0)
}

func span(from, to history.Date) string { return fmt.Sprintf("%s to %s", from, to) }

// beginning says why and when an episode began.
func beginning(e *history.Told) string {
	if e.PreviousLast == 0 {
		return "first seen; it may be older"
	}
	why := map[history.Cause]string{
		history.ByPolicy:     "its rules changed",
		history.ByManaged:    "a managed block changed",
		history.ByPresence:   "the file came, went, or became something else",
		history.ByRefusal:    "it began or ceased to refuse",
		history.ByObserver:   "another observer asked; no change is known",
		history.UnknownJudge: "the file changed, and so did the registry or the rules; whether its policy did is not known",
	}[e.Cause]
	return fmt.Sprintf("%s after %s, by %s", cmp.Or(why, string(e.Cause)), e.PreviousLast, e.ValidFrom)
}

// policyText describes a policy in one line.
func policyText(p *history.Policy) string {
	if p.Class != history.ClassRules {
		return strings.ReplaceAll(p.Class, "_", " ")
	}
	text := "rules: * " + p.StarVerdict
	for _, own := range []struct {
		word   string
		tokens []string
	}{{"blocked", p.OwnBlocked}, {"partial", p.OwnPartial}, {"allowed", p.OwnAllowed}} {
		if len(own.tokens) > 0 {
			text += "; " + own.word + " " + strings.Join(own.tokens, ", ")
		}
	}
	for _, more := range []struct{ name, value string }{{"Content-Signal", p.ContentSignal}, {"Content-Usage", p.ContentUsage}, {"License", p.License}, {"managed by", p.Managed}} {
		if more.value != "" {
			text += "; " + more.name + " " + more.value
		}
	}
	return text
}
