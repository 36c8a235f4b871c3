package reaudit

import (
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/bulkscan/bulkscan/internal/sitetest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// versionOne returns a copy of testdata/version1, a scan of sitetest.Judged(t, 60) by the last bulkscan of schema
// version 1.
func versionOne(t *testing.T) *store.Dir {
	t.Helper()
	dir := newDir(t)
	if err := os.CopyFS(dir.Root(), os.DirFS("testdata/version1")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestUpgrade judges a scan of schema version 1 again. It becomes what a scan of today writes, except for sites without
// stored bodies: these have no policy of the RFC. The new columns are no differences.
func TestUpgrade(t *testing.T) {
	from, to := versionOne(t), newDir(t)
	source := mustReadScan(t, from, "stored")
	if source.Manifest.SchemaVersion != 1 || source.Has(schema.Policies) {
		t.Fatalf("it is of version %d", source.Manifest.SchemaVersion)
	}
	came := mustScan(t, source, to, asToday())
	made := mustReadScan(t, to, "stored")
	if m := made.Manifest; m.SchemaVersion != schema.Version || !made.Has(schema.Policies) ||
		made.Commits[0].SchemaVersion != schema.Version {
		t.Errorf("it is of version %d, with tables %v", m.SchemaVersion, m.Tables)
	}
	if came.Columns["policy_id"]+came.Columns["rfc_policy_id"] > 0 {
		t.Errorf("columns that it could not have differ: %+v", came)
	}
	today := storedScan(t, newDir(t), storedOptions, sitetest.Judged(t, 60))
	if without := checkUpgraded(t, made, today); without == 0 || without != came.Stayed() || came.Carried[CarriedHTML]+
		came.Carried[CarriedNoRecords] != without {
		t.Errorf("%d sites have no policy of the RFC, %+v", without, came)
	}
	soundDataset(t, to)

	// Once more: policies of version 2 are kept.
	again := newDir(t)
	if came := mustScan(t, made, again, asToday()); came.Sites != 0 {
		t.Errorf("judged once more: %+v", came)
	}
	if !reflect.DeepEqual(collect[schema.PolicyRow](t, made, schema.Policies), collect[schema.PolicyRow](t,
		mustReadScan(t, again, "stored"), schema.Policies)) {
		t.Error("judged once more, it has other policies")
	}
	soundDataset(t, again)

	// Without bodies only answers that have none can be judged. The others keep their rows.
	bodiless := versionOne(t)
	source = mustReadScan(t, bodiless, "stored")
	m := source.Manifest
	m.Tables, m.Pruned = slices.DeleteFunc(m.Tables, func(table string) bool { return table == schema.Bodies }),
		[]string{schema.Bodies}
	if err := m.Write(t.Context(), bodiless); err != nil {
		t.Fatal(err)
	}
	to = newDir(t)
	came = mustScan(t, mustReadScan(t, bodiless, "stored"), to, asToday())
	if without := checkUpgraded(t, mustReadScan(t, to, "stored"), today); came.Carried[CarriedNotStored] != without ||
		came.Bodies != 0 {
		t.Errorf("without bodies %d sites have no policy of the RFC, %+v", without, came)
	}
	soundDataset(t, to)
}

// checkUpgraded compares the rows of sites with those of a scan of today, and returns how many sites with access
// conditional have no policy of the RFC. Each other policy has its row.
func checkUpgraded(t *testing.T, made, today *commit.Scan) (without int64) {
	t.Helper()
	policies := map[int64]schema.PolicyRow{}
	for _, row := range collect[schema.PolicyRow](t, today, schema.Policies) {
		policies[row.PolicyID] = row
	}
	found := map[int64]bool{}
	for _, row := range collect[schema.PolicyRow](t, made, schema.Policies) {
		if !reflect.DeepEqual(row, policies[row.PolicyID]) {
			t.Errorf("%+v, today %+v", row, policies[row.PolicyID])
		}
		found[row.PolicyID] = true
	}
	want := collect[schema.SiteRow](t, today, schema.Sites)
	for i, row := range collect[schema.SiteRow](t, made, schema.Sites) {
		if row.RFCPolicyID == 0 && row.Access == "conditional" {
			without++
			want[i].RFCPolicyID = 0
		}
		if row.PolicyID != want[i].PolicyID || row.RFCPolicyID != want[i].RFCPolicyID || row.PolicyID != 0 &&
			!found[row.PolicyID] || row.RFCPolicyID != 0 && !found[row.RFCPolicyID] {
			t.Errorf("seq %d has the policies %d and %d, today %d and %d", row.Seq, row.PolicyID, row.RFCPolicyID,
				want[i].PolicyID, want[i].RFCPolicyID)
		}
	}
	return without
}
