package inputs

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// written describes the output of a program: its columns, and the values that should be read.
type written struct {
	name    string
	columns []string             // "" of an index
	row     func(i int) []string // of the columns
	host    func(i int) string   // of a row; nil: several columns have sites, and one must be chosen
	rank    string               // of the first row; "" if there is none
}

// cell is a number that grows with the row.
func cell(i, by int) string { return strconv.Itoa(i * by) }

func nameOf(i int) string { return "www.site" + strconv.Itoa(i) + ".example" }

var writers = []written{
	{"pandas", []string{"", "domain", "rank", "category"}, func(i int) []string {
		return []string{cell(i, 1), nameOf(i), strconv.Itoa(i+1) + ".0", "news"}
	}, nameOf, "1"},
	{"a spreadsheet", []string{"Rank", "Website", "Note"}, func(i int) []string {
		return []string{strconv.Itoa(i+1) + ",000", "https://" + nameOf(i) + "/", "a, b; c"}
	}, nameOf, "1000"},
	{"Search Console", []string{"Top pages", "Clicks", "Impressions", "CTR", "Position"}, func(i int) []string {
		return []string{"https://" + nameOf(i) + "/a/b", cell(i, 1), cell(i, 3), cell(i, 1) + ".5%", cell(i, 2) + ".25"}
	}, nameOf, ""},
	{"Screaming Frog", []string{"Address", "Content Type", "Status Code", "Title 1"}, func(i int) []string {
		return []string{"https://" + nameOf(i) + "/x?q=1#y", "text/html; charset=UTF-8", "200", "Home of page " + cell(i, 1)}
	}, nameOf, ""},
	{"Screaming Frog with canonical links", []string{"Address", "Status Code", "Canonical Link Element 1"},
		func(i int) []string {
			return []string{"https://" + nameOf(i) + "/x", "200", "https://" + nameOf(i) + "/"}
		}, nil, ""},
	{"Wikidata", []string{"item", "officialWebsite"}, func(i int) []string {
		return []string{"http://www.wikidata.org/entity/Q" + cell(i, 7), "https://" + nameOf(i) + "/"}
	}, nil, ""},
	{"Wikidata, with labels", []string{"itemLabel", "officialWebsite"}, func(i int) []string {
		return []string{"Name " + cell(i, 1), "https://" + nameOf(i) + "/en/index.html"}
	}, nameOf, ""},
	{"links", []string{"source", "target"}, func(i int) []string {
		return []string{"https://" + nameOf(i) + "/x", "https://t" + cell(i, 1) + ".example/1"}
	}, nil, ""},
	{"links of names", []string{"from", "to"}, func(i int) []string {
		return []string{nameOf(i), "t" + cell(i, 1) + ".example"}
	}, nil, ""},
	{"ranks of a web graph", []string{"hc_pos", "hc_val", "pr_pos", "pr_val", "host_rev", "n_hosts"},
		func(i int) []string {
			return []string{cell(i+1, 1), "2." + cell(i+1, 3) + "E7", cell(i+2, 1), "0.0127504075179097" + cell(i, 1),
				"com.site" + cell(i, 1) + ".www", cell(i+1, 5)}
		}, func(i int) string { return "www.site" + cell(i, 1) + ".com" }, ""},
	{"vertices of a web graph", []string{"id", "host_rev"}, func(i int) []string {
		return []string{cell(i+1, 1), "uk.co.site" + cell(i, 1)}
	}, func(i int) string { return "site" + cell(i, 1) + ".co.uk" }, ""},
}

// TestWriters reads the output of programs, in every shape: separators, quotes, line ends, with and without a header,
// short and long. Each list gives its sites and nothing else, or asks for a column; with the column it gives the sites.
func TestWriters(t *testing.T) {
	read := func(content string, opt Options) (hosts []string, first Entry, err error) {
		r, err := Open(t.Context(), []string{listFile(t, "list", []byte(content))}, opt)
		if err != nil {
			return nil, first, err
		}
		defer closeReader(t, r)
		entries, err := readAll(r)
		for _, e := range entries {
			hosts = append(hosts, e.Origin.Host())
		}
		if len(entries) > 0 {
			first = entries[0]
		}
		return hosts, first, err
	}
	for _, w := range writers {
		for _, delimiter := range []string{",", "\t", ";"} {
			for _, quoted := range []bool{false, true} {
				for _, header := range []bool{true, false} {
					for _, end := range []string{"\n", "\r\n"} {
						for _, n := range []int{1, 3, 250} {
							if !header && (n < 3 || w.columns[0] == "") { // a line alone may be anything; an index makes columns of numbers
								continue
							}
							if !header && delimiter == ";" && w.name == "a spreadsheet" { // the commas in its ranks are as good separators
								continue
							}
							var b strings.Builder
							line := func(cells []string) {
								for i, c := range cells {
									if quoted || strings.Contains(c, delimiter) {
										c = `"` + c + `"`
									}
									cells[i] = c
								}
								b.WriteString(strings.Join(cells, delimiter) + end)
							}
							if header {
								line(append([]string(nil), w.columns...))
							}
							var want []string
							for i := range n {
								line(w.row(i))
								if w.host != nil {
									want = append(want, w.host(i))
								}
							}
							what := fmt.Sprintf("%s, %q, quoted %v, header %v, %q, %d rows:\n%s", w.name, delimiter, quoted, header, end, n,
								b.String()[:min(b.Len(), 200)])
							hosts, first, err := read(b.String(), Options{})
							if w.host == nil {
								if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(e.Error(),
									"several columns hold host names") || !strings.Contains(e.Remedy, "--column") {
									t.Errorf("%s%v and %v, want to be asked for a column", what, err, hosts)
								}
								hosts, _, err = read(b.String(), Options{Column: "1"})
								if err != nil || len(hosts) == 0 {
									t.Errorf("%swith a column: %v, %v", what, hosts, err)
								}
								continue
							}
							if err != nil || strings.Join(hosts, " ") != strings.Join(want, " ") {
								t.Errorf("%s%d hosts, %v: %.100v", what, len(hosts), err, hosts)
							} else if header && w.rank != "" && strconv.FormatInt(first.Rank, 10) != w.rank {
								t.Errorf("%srank %d, want %s", what, first.Rank, w.rank)
							}
						}
					}
				}
			}
		}
	}
}

// TestWrittenTables reads the tables of DuckDB, Polars and arrow-rs of package sink/table, with ranks and labels.
func TestWrittenTables(t *testing.T) {
	paths, err := filepath.Glob("../sink/table/testdata/lists/*.parquet")
	if err != nil || len(paths) < 8 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		base := strings.TrimSuffix(filepath.Base(path), ".parquet")
		n, err := strconv.Atoi(base[strings.LastIndexByte(base, '-')+1:])
		if err != nil {
			t.Fatal(err)
		}
		r, err := Open(t.Context(), []string{path}, Options{Parquet: openParquet, LabelColumn: "label"})
		if err != nil {
			t.Fatal(err)
		}
		entries, err := readAll(r)
		if err != nil || len(entries) != n {
			t.Errorf("%s: %d entries, %v", base, len(entries), err)
		}
		for i, e := range entries {
			rank := int64(0)
			if i%3 > 0 {
				rank = int64(i + 1)
			}
			if e.Input != fmt.Sprintf("h%d.example", i) || e.Rank != rank || e.Label != []string{"news", "shop", "blog"}[i%3] {
				t.Errorf("%s: row %d is %+v", base, i, e)
				break
			}
		}
		closeReader(t, r)
	}
}

// TestPathsOfLists checks that separators in the paths of plain URLs make no table.
func TestPathsOfLists(t *testing.T) {
	f := func(pattern string, n int) {
		t.Helper()
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.NewReplacer("SITE", nameOf(i), "N", strconv.Itoa(i), "COMMAS",
				strings.Repeat(",", i%4)).Replace(pattern) + "\n")
		}
		r, err := Open(t.Context(), []string{listFile(t, "list", []byte(b.String()))}, Options{})
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			return
		}
		defer closeReader(t, r)
		if entries, err := readAll(r); err != nil || len(entries) != n || entries[n-1].Origin.Host() != nameOf(n-1) {
			t.Errorf("%s: %d entries of %d, %v", pattern, len(entries), n, err)
		}
	}
	for _, n := range []int{1, 2, 3, 50, 300} {
		f("https://SITE/article,N.html", n)
		f("https://SITE/article,N", n)
		f("https://SITE/a,b,c", n)
		f("https://SITE/aCOMMASb", n)
		f("https://SITE/x;jsessionid=N", n)
		f("https://SITE/resize,w_N/https://cdn.example/y", n)
		f("https://SITE/?q=1,2&to=https://x.example/,N", n)
		f("https://SITE/", n)
		f("SITE", n)
	}
}

// TestWords checks which cells of a column of sites are no sites, in every form: names without a top-level domain, and
// the words of spreadsheets for unknown values.
func TestWords(t *testing.T) {
	words := []string{"N/A", "n/a", "n.a.", "-", "--", "null", "NULL", "None", "nan", `\N`, "unknown", "(blank)", "TBD",
		"Total", "no website", "www", "localhost", "intranet",
		"http://", "https://n/a", "0", "https://https://x.example", "https://http://x.example/", "http//example.biz",
		`https:\\example.info`, "example.com / example.org", "http:// example.net", "#DIV/0!", "?", "…"}
	sites := []string{"a.example", "https://b.example/x", "c.example:8443", "203.0.113.7", "[2001:db8::1]", "EXAMPLE.com.",
		"xn--p1ai.xn--p1ai"}
	for name, line := range map[string]string{"lines": "%s\n", "csv": "1,\"%s\"\n",
		"jsonl": "{\"rank\":1,\"domain\":%q}\n"} {
		var b strings.Builder
		for _, s := range sites {
			fmt.Fprintf(&b, line, s)
		}
		for _, w := range words {
			fmt.Fprintf(&b, line, w)
		}
		opt := Options{Column: map[string]string{"csv": "2"}[name]}
		for _, local := range []bool{false, true} {
			opt.LocalNames = local
			r, err := Open(t.Context(), []string{listFile(t, name, []byte(b.String()))}, opt)
			if err != nil {
				t.Fatal(err)
			}
			entries, err := readAll(r)
			closeReader(t, r)
			if err != nil || !local && len(entries) != len(sites) {
				t.Errorf("%s: %d entries, %v: %v", name, len(entries), err, entries[min(len(sites), len(entries)):])
			}
			if local && !strings.Contains(fmt.Sprint(entries), " localhost ") {
				t.Errorf("%s: internal names are not taken: %v", name, entries)
			}
			for _, e := range entries {
				if e.Origin.Host() == "https" && strings.Contains(e.Input, "://") {
					t.Errorf("%s: a second scheme became %v", name, e.Origin)
				}
			}
		}
	}
}

// TestRanks checks which cells are ranks.
func TestRanks(t *testing.T) {
	f := func(text string, want int64) {
		t.Helper()
		if got := Number([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]int64{
		"1": 1, "007": 7, "999999999999999": 999999999999999, "2.0": 2, "2.": 2, "2.000000": 2, "1,000": 1000,
		"12,345,678": 12345678, "1,000.0": 1000,
		"1e3": 1000, "1E+3": 1000, "1.5e3": 1500, "2.4993276E7": 24993276, "1e14": 100000000000000,
	} {
		f(text, want)
	}
	for _, text := range []string{"", "0", "0.0", "-5", "+5", "2.5", "1e-3", "1.5e0", "1e", "e3", "1e15", "1e99999999999",
		"1000000000000000", "1,00", "1,0000", "1000,000", ",100", "1,,000",
		"1.0.0", "1.000,5", "0x10", "inf", "NaN", "1 000", "1e3e3", strings.Repeat("1", 500), strings.Repeat("0", 40), "٣"} {
		f(text, 0)
	}
}
