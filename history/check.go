package history

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
)

// Verify compares the ledger with its record and with the published scans, and reports the differences. Without a
// ledger there is nothing to compare.
func Verify(ctx context.Context, st store.Store, report func(verify.Finding)) error {
	for retries := 0; ; retries++ {
		ledger, findings, err := check(ctx, st)
		if err != nil {
			return err
		}
		if len(findings) > 0 && retries < 3 { // a merge may have replaced the files meanwhile
			if now, err := ReadLedger(ctx, st); err == nil && ledger != nil && now.Sum != ledger.Sum {
				continue
			}
		}
		for _, f := range findings {
			report(f)
		}
		return nil
	}
}

const remedy = "; bulkscan history --rebuild derives it anew"

func check(ctx context.Context, st store.Store) (*Ledger, []verify.Finding, error) {
	h, err := commit.ReadHead(ctx, st)
	if err != nil {
		return nil, nil, ctx.Err() // damage is reported with the heads
	}
	p, err := readPast(ctx, h)
	if err != nil {
		return nil, nil, ctx.Err()
	}
	findings, err := checkFiles(ctx, st, p.files(), p.remedy())
	if err != nil {
		return nil, nil, err
	}
	ledger, found, err := checkLedger(ctx, st, h, p)
	return ledger, append(findings, found...), err
}

// checkFiles verifies files, and adds to each finding what to do.
func checkFiles(ctx context.Context, st store.Store, files []File, remedy string) (findings []verify.Finding,
	err error) {
	for _, f := range files {
		found, err := verify.File(ctx, st, f.File, "")
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			f.What += remedy
			findings = append(findings, f)
		}
	}
	return findings, nil
}

func checkLedger(ctx context.Context, st store.Store, h *commit.Head, p *past) (*Ledger, []verify.Finding, error) {
	ledger, err := readLedger(ctx, st, h)
	newer, isNewer := errors.AsType[*schema.NewerError](err)
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case errors.Is(err, store.ErrNotExist) && h.Ledger != nil:
		return nil, []verify.Finding{{Kind: verify.Damaged, File: LedgerName, What: "it is missing" + remedy}}, nil
	case errors.Is(err, store.ErrNotExist):
		return nil, nil, nil
	case isNewer:
		return nil, []verify.Finding{{Kind: verify.Newer, File: LedgerName, What: newer.Error()}}, nil
	case err != nil:
		return nil, []verify.Finding{{Kind: verify.Damaged, File: LedgerName, What: strings.TrimPrefix(err.Error(),
			"cannot read "+LedgerName+": ") + remedy}}, nil
	}
	own := slices.DeleteFunc(ledger.all(), func(f File) bool { return p.names(f.Name) })
	findings, err := checkFiles(ctx, st, own, remedy)
	if err != nil {
		return ledger, nil, err
	}
	manifests, err := h.Manifests(ctx)
	if damaged := (*commit.DamagedScansError)(nil); errors.As(err, &damaged) { // reported without the history
		return ledger, findings, nil
	}
	followed, _ := p.follow(published(manifests))
	merged := isOf(ledger.Scans)
	for _, s := range followed {
		if merged(s.ScanID, s.FinishedAt) == nil {
			findings = append(findings, verify.Finding{Kind: verify.Leftover, File: LedgerName, What: "it does not have scan " +
				s.ScanID + " as it is now: the scan was killed before merging it, or is about to; the next scan merges it"})
		}
	}
	return ledger, findings, err
}
