package scan

import (
	"context"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// CheckVersions returns a *schema.OlderError or *schema.NewerError if a dataset is of another schema version than this
// program's; the error names the scan or the file. All scans of a dataset have one version. Other errors are left to
// the next reader of the records.
func CheckVersions(ctx context.Context, st store.Store) error {
	_, scans := commit.LastScans(ctx, st, 1)
	_, ledger := history.ReadLedger(ctx, st)
	errs := []error{scans, ledger}
	for _, err := range index.Rows(ctx, st) {
		errs = append(errs, err)
		break
	}
	for _, err := range errs {
		if schema.OfOtherVersion(err) {
			return err
		}
	}
	return nil
}
