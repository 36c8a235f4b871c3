package scan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/method"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// figures are the parts of an answer that depend on the sites, as text by name: a summary, or the tables and summaries
// of a report.
func summaryFigures(s *summary.Summary) map[string]string {
	counted := *s
	counted.StartedAt, counted.FinishedAt, counted.DatasetBytes, counted.Lost,
		counted.LeftOut = s.StartedAt.UTC().Truncate(1<<62), nil, 0, nil, nil
	return map[string]string{"summary " + s.Blocking.Definition: encoded(&counted)}
}

func encoded(v any) string {
	text, err := json.Marshal(v)
	return fmt.Sprint(string(text), err)
}

func reportFigures(s *tables.Survey) map[string]string {
	all := map[string]string{"unobserved": encoded(s.Unobserved), "lines": encoded(s.Lines)}
	for _, by := range s.Summaries {
		maps.Copy(all, summaryFigures(by))
	}
	for name, t := range s.Tables {
		all[name] = encoded(t)
	}
	for _, section := range s.Method {
		if section.Title == "Coverage" {
			all["coverage"] = encoded(section)
		}
	}
	if s.Sensitivity != nil {
		counted := *s.Sensitivity
		counted.LeftOut = nil
		all["sensitivity"] = encoded(counted)
	}
	return all
}

// overDates are the tables of a report over several nights, and ofLedger those of them that come from the ledger.
var (
	ofLedger  = []string{"first-blocked", "transitions", "survival", "changed-sites"}
	overDates = append([]string{"blocked-over-time"}, ofLedger...)
)

// TestSkipDamaged damages each file of a dataset in three ways, and asks for a summary and for a report with and
// without Skip. With it both answer: a part whose file or record is damaged is left out with all its tables, so that
// the figures are those of a dataset in which its sites were never scanned; derived data is counted again, or left out;
// and the line names file and scan. Without it the answer is an error with a remedy, or the one of the undamaged
// dataset.
func TestSkipDamaged(t *testing.T) {
	files, nights := newDoor(t, -1)
	asked := nights[1]
	ask := func(st store.Store, skip *survey.Skip) (sums, report map[string]string, errs []error) {
		o := doorOptions()
		o.Skip = skip
		s, errSummary := summary.Of(t.Context(), st, asked, summary.Options{Options: o})
		if errSummary == nil {
			sums = summaryFigures(s)
			if skip != nil && skip.On && !slices.Equal(s.LeftOut, skip.Omissions()) {
				t.Errorf("the summary has %v", s.LeftOut)
			}
		}
		if skip != nil {
			o.Skip = &survey.Skip{On: skip.On}
		}
		r, errReport := tables.Take(t.Context(), st, asked, tables.Options{Options: o})
		if errReport == nil {
			report = reportFigures(r)
			if skip != nil {
				*skip = *o.Skip
			}
		}
		return sums, report, []error{errSummary, errReport}
	}
	whole, wholeReport, errs := ask(placed(t, files), nil)
	if errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	unchanged := &survey.Skip{On: true}
	if s, r, errs := ask(placed(t, files), unchanged); !maps.Equal(s, whole) || !maps.Equal(r, wholeReport) ||
		errors.Join(errs...) != nil || len(unchanged.Omissions()) > 0 {
		t.Fatalf("without damage: %v, %v", errs, unchanged.Omissions())
	}
	ledger, err := history.ReadLedger(t.Context(), placed(t, files))
	if err != nil {
		t.Fatal(err)
	}
	ofHistory := func(name string) bool {
		return slices.ContainsFunc(ledger.Files, func(f history.File) bool { return f.Name == name })
	}
	without := map[string][2]map[string]string{} // by part: the answers of a dataset that never had its sites
	for part := range 2 {
		files, _ := newDoor(t, part)
		s, r, errs := ask(placed(t, files), nil)
		if errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		without[fmt.Sprintf("0-%d", part)] = [2]map[string]string{s, r}
	}
	equal := func(what string, got, want map[string]string, but ...string) {
		t.Helper()
		for name := range want {
			if !slices.Contains(but, name) && got[name] != want[name] {
				t.Errorf("%s: %s is\n%.600s\nnot\n%.600s", what, name, got[name], want[name])
			}
		}
	}
	sorts := map[string]int{}
	for i, name := range slices.Sorted(maps.Keys(files)) {
		for k, kind := range []string{"flip", "cut", "delete"} {
			if testing.Short() && (i+k)%3 > 0 {
				continue
			}
			st, what := placed(t, files), kind+" "+name
			damaged := flipped(name, files[name], len(files[name])/2).content
			var err error
			switch kind {
			case "delete":
				err = st.Delete(t.Context(), name)
			case "cut":
				damaged = files[name][:len(files[name])/2]
				fallthrough
			default:
				err = st.Put(t.Context(), name, damaged)
			}
			if err != nil {
				t.Fatal(err)
			}
			skip := &survey.Skip{On: true}
			sums, report, errs := ask(st, skip)
			line := skip.Omissions().Line()
			_, _, refused := ask(st, nil)
			says := func(parts ...string) {
				t.Helper()
				for _, part := range append(parts, "left out: ", "see bulkscan verify") {
					if !strings.Contains(line, part) {
						t.Errorf("%s: %q lacks %q", what, line, part)
					}
				}
			}
			remedied := func(of ...error) {
				t.Helper()
				for _, err := range of {
					if err == nil || !survey.IsDamage(err) || !strings.Contains(err.Error(), "bulkscan ") &&
						!strings.Contains(err.Error(), "writes it anew") {
						t.Errorf("%s: without Skip: %v", what, err)
					}
				}
			}
			part, ofPart := "", strings.Contains(name, asked+"-0-")
			if of, ok := strings.CutPrefix(name, commit.CommitsFolder(asked)); ok {
				part = strings.TrimSuffix(of, ".json")
			} else if ofPart {
				part = strings.TrimSuffix(name[strings.Index(name, asked)+len(asked)+1:], ".parquet")
			}
			switch table, _, _ := strings.Cut(name, "/"); {
			case name == commit.ManifestName(asked), errs[0] != nil && strings.HasPrefix(name, "_head/"):
				// which say what is asked for
				sorts["manifest"]++
				for _, err := range errs {
					if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(name, "manifest.json")) &&
						!strings.Contains(err.Error(), asked) {
						t.Errorf("%s: %v", what, err)
					}
				}
				continue
			case part != "":
				sorts["part "+table]++
				if says("1 of 2 parts (2 of 4 sites) of scan "+asked+": ", " is damaged ("); kind != "delete" || ofPart {
					says(name)
				}
				equal(what, sums, without[part][0])
				equal(what, report, without[part][1], ofLedger...)
				for _, table := range ofLedger[:3] { // of the tokens of the lines; the ledger has the sites
					if report["lines"] != wholeReport["lines"] {
						break
					}
					equal(what, map[string]string{table: report[table]}, map[string]string{table: wholeReport[table]})
				}
				if kind != "flip" && !slices.Contains([]string{schema.Bodies, schema.Evidence}, table) {
					remedied(refused[1])
				}
			case schema.IsStatistics(table) && !strings.Contains(name, nights[2]) && (table == schema.TokenStats ||
				strings.Contains(name, asked)),
				strings.HasPrefix(name, commit.FilesFolder(asked)), name == commit.FileRecordName(nights[0], schema.TokenStats):
				sorts["statistics"]++
				equal(what, sums, whole)
				equal(what, report, wholeReport)
				if line == "" && kind == "flip" && strings.Contains(name, nights[0]) && refused[1] == nil {
					continue // a column that a series does not need
				}
				if says(name, "scan night-"); kind != "delete" {
					remedied(refused[1])
				}
			case ofHistory(name), (name == history.LedgerName || name == schema.IndexName) && kind != "delete":
				sorts["over dates"]++
				equal(what, sums, whole)
				equal(what, report, wholeReport, overDates...)
				says("figures over dates: ", name)
				if _, series := report["blocked-over-time"]; series != (name != schema.IndexName) {
					t.Errorf("%s: the series is there: %v", what, series)
				}
				if kind != "delete" {
					remedied(refused[1])
				}
			default: // what is not read, or stands elsewhere
				sorts["others"]++
				equal(what, sums, whole)
				if equal(what, report, wholeReport, overDates...); line != "" {
					says(name)
				}
			}
			if errors.Join(errs...) != nil {
				t.Errorf("%s: %v", what, errs)
			}
		}
	}
	t.Log(sorts)
}

// TestSkipDamagedOfUnit shows what is left out of several scans of a date: the site of a damaged part counts by the
// other scan's row, and a scan without readable records is left out completely, but only with Skip.
func TestSkipDamagedOfUnit(t *testing.T) {
	f := func(name, line string, replaced int64) {
		t.Helper()
		st := newDisk(t)
		completed(t, st, "one", "2026-11-01", false)
		completed(t, st, "two", "2026-11-01", false)
		data, err := store.ReadAll(t.Context(), st, name, 1<<20)
		if err == nil {
			err = st.Put(t.Context(), name, data[:len(data)-1])
		}
		if err != nil {
			t.Fatal(err)
		}
		o := summary.Options{Options: doorOptions()}
		if _, err := summary.Of(t.Context(), st, "two", o); survey.IsDamage(err) == strings.HasPrefix(name,
			schema.Bodies) {
			// which a summary does not read
			t.Errorf("%s: without Skip: %v", name, err)
		}
		o.Skip = &survey.Skip{On: true}
		s, err := summary.Of(t.Context(), st, "two", o)
		if err != nil {
			t.Fatal(err)
		}
		got := s.LeftOut.Line()
		if s.Rows != 3 || s.Replaced != replaced || len(s.LeftOut) != 1 || !strings.HasPrefix(got, "left out: "+line) {
			t.Errorf("%s: %d rows, %d replaced, %s", name, s.Rows, s.Replaced, got)
		}
		o.Skip = &survey.Skip{On: true} // a report opens the scans several times
		_, errSensitivity := summary.SensitivityOf(t.Context(), st, "two", "GPTBot", o)
		_, errMethod := method.Of(t.Context(), st, "two", o.Options)
		if again := o.Skip.Omissions(); errSensitivity != nil || errMethod != nil || !slices.Equal(again, s.LeftOut) {
			t.Errorf("%s: %v, %v, %v", name, again, errSensitivity, errMethod)
		}
		o.Alone, o.Skip = true, &survey.Skip{On: true}
		if s, err := summary.Of(t.Context(), st, "two", o); err != nil || len(s.LeftOut) > 0 != strings.Contains(name,
			"two") {
			t.Errorf("%s: alone %v, %v", name, s, err)
		}
	}
	f("sites/scan_date=2026-11-01/part-two-0-1.parquet",
		"1 of 3 parts (1 of 3 sites) of scan two: sites/scan_date=2026-11-01/part-two-0-1.parquet is damaged (bytes: ", 2)
	f("bodies/scan_date=2026-11-01/part-one-0-1.parquet",
		"1 of 3 parts (1 of 3 sites) of scan one: bodies/scan_date=2026-11-01/part-one-0-1.parquet is damaged (bytes: ", 2)
	f("_scans/one/commits/0-0.json",
		"1 of 3 parts (1 of 3 sites) of scan one: _scans/one/commits/0-0.json is damaged (it is damaged: ", 2)
	f("_scans/one/manifest.json", "scan one: cannot read the manifest of scan one: it is damaged", 0)
}
