package main

import (
	"fmt"
	"go/constant"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/survey"
)

// namedCSV has the figures of README's picture, by night and token: the number of sites with rules, as they were last
// seen to change; how many of them name the token in a group of its own; and how many others block it by `*`.
const namedCSV = "docs/gallery/named.csv"

// figures are the figures of the documents. A sentence without a hole has numbers of others, examples, or numbers that
// another test checks.
func figures(t *testing.T) (all []figure) {
	t.Helper()
	f := func(page, sentence string, values ...string) { all = append(all, figure{page, sentence, values}) }
	s := source{t, map[string]map[string]constant.Value{}}
	c, in, num := s.constant, s.in, func(text string) float64 {
		v, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
		if err != nil {
			t.Error(err)
		}
		return v
	}
	seconds := func(name string) string { return plain(float64(c(name)) / 1e9) }
	kib := func(name string) string { return plain(float64(c(name)) / 1024) }
	mib := func(name string) string { return plain(float64(c(name)) / (1 << 20)) }
	code := func(name string) string { return plain(float64(c(name))) }
	given := func(command, flag string) string {
		found, _, err := (&app{}).root().Find([]string{command})
		if err != nil {
			t.Fatal(err)
		}
		return found.Flags().Lookup(flag).DefValue
	}
	grouped := func(name string) string { return commas(c(name)) }
	const (
		first  = "bench/results/2026-11-21-epyc-2cpu/README.md"
		third  = "bench/results/2026-11-23-epyc-2cpu/README.md"
		fourth = "bench/results/2026-11-24-epyc-2cpu/README.md"
		fifth  = "bench/results/2026-11-25-epyc-2cpu/README.md"
		whole  = "bench/results/2026-11-27-epyc-2cpu/whole.md"
		memory = "bench/results/2026-11-27-xeon-2cpu/memory.md"
		month  = "bench/results/2026-11-24-epyc-2cpu/month.md"
	)
	goVersion := in("go.mod", `(?m)^go (\d+\.\d+)`)
	definitions := numberWords[len(survey.DefinitionNames())]
	perSite := in(first, `100,000 real hosts' names .*?, (\d+) s of processor time`) // times 10 µs

	page := "README.md"
	named := func(night, token string, column int) string {
		return in(namedCSV, `(?m)^`+night+","+token+strings.Repeat(`,\d+`, column-1)+`,(\d+)`)
	}
	const last = "2024-07-14"
	f(page,
		"Of {} popular sites with rules, {} named GPTBot in a group of their own by 14 July 2024. None did before 13 August 2023, a week", named(last, "GPTBot", 3), named(last, "GPTBot", 1))
	f(page,
		"announced it; {} did that day, {} two weeks later, {} on 29 October. {} named CCBot, {} Google-Extended, {} ClaudeBot. Another {} block GPTBot by `*` alone; {} did so before",
		named("2023-08-13", "GPTBot", 1), named("2023-08-27", "GPTBot", 1), named("2023-10-29", "GPTBot", 1),
		named(last, "CCBot", 1), named(last, "Google-Extended", 1), named(last, "ClaudeBot", 1),
		named(last, "GPTBot", 2), named("2023-07-30", "GPTBot", 2))
	f(page,
		`<img width="100%" src="docs/gallery/named.svg" alt="Lines over two years: sites that name GPTBot rise from none to {} within a year, CCBot to {}, Google-Extended to {}, ClaudeBot to {}; a`,
		named(last, "GPTBot", 1), named(last, "CCBot", 1), named(last, "Google-Extended", 1), named(last, "ClaudeBot", 1))
	f(page,
		"git archive [bharath06/robotstxt](https://github.com/bharath06/robotstxt), on 127 days from 13 July 2022: 805 sites, the first thousand of Alexa's list of 2022 with")
	f(page, "# needs Go {} ```", goVersion)
	f(page, `width="52%"`)
	f(page, "simulated web of {} origins", commas(int64(num(given("demo", "origins")))))
	f(page, "each of {} recorded decisions", in(first, `(?s)how many of\s+([\d,]+) decisions differ`))
	f(page, "IPv6 per /{}), on", in("pipeline/level.go", `An IPv6 address stands for its /(\d+)`))
	f(page, "[at most {} bytes](docs/inputs.md#several", in("inputs/dedupe_test.go", `perEntry > (\d+)`))
	f(page, "A scan of a million sites peaked at [{} MB](bench", in(memory, `1,000,000 \| (\d+) MB`))
	f(page, "one of ten million at {} MB;", in(memory, `10,000,000 \| (\d+) MB`))
	f(page, "with its report, at {} MB. To", in(fifth, `second night \| [\d.]+ \| (\d+)`))
	f(page, "A first survey in ten minutes")
	f(page, "There are [{} queries]", strconv.Itoa(len(queryNames(t))))
	f(page, "simulated web, {} real host names with real files took {} s, {} s of processor time and {} MB:",
		in(first, `([\d,]+) real hosts`), in(first, `real hosts'.*?\| (\d+) s`), perSite,
		in(first, `real hosts'.*?time, (\d+) MB`))
	f(page, "alone: {} s of processor time for 10,000 plain sites beside {} s, and {} s by TLS beside {} s",
		in(whole, `\*\*whole scan\*\* \| ([\d.]+)`), in(whole, `nethttp, .*? \| ([\d.]+)`),
		in(whole, `\*\*whole scan\*\* .*? × \| ([\d.]+)`), in(whole, `nethttp, .*? × \| ([\d.]+)`))
	f(page,
		"reads {} real files at {} MB/s, without an allocation; `temoto/robotstxt` reads {} MB/s, a port of Google's parser {}. It can",
		in(first, `files, MB \| ([\d,]+),`), in(first, `\| bulkscan \w+ \| ([\d,]+)`),
		in(first, `temoto/robotstxt \S+ \| ([\d.]+)`), in(first, `grobotstxt \S+ \| ([\d.]+)`))

	page = "ARCHITECTURE.md"
	f(page, "as a record of at most {} bytes", in("pipeline/pipeline_test.go", `Sizeof\(record\{\}\); size > (\d+)`))
	f(page, "({} slots each). Keys", grouped("pipeline.tableCells"))
	f(page, "(IPv6 by /{}) and", in("pipeline/level.go", `An IPv6 address stands for its /(\d+)`))
	f(page, "a body takes {} KiB, and the next size when that is full: {} KiB, {} KiB,", kib("fetcher.smallBody"),
		kib("fetcher.middleBody"), kib("fetcher.largeBody"))
	f(page, "one budget for the process ({} MiB)", in("fetcher/fetcher.go", `the default is (\d+) MiB, or that`))
	f(page, "**In total** at most {} KB plain and {} KB with TLS", in("fetcher/bench_test.go",
		`"plain silent": (\d+)_000`), in("fetcher/bench_test.go", `"tls silent": (\d+)_000`))
	f(page, "at most {}; `--dns-rate`; {} s of asking", code("pipeline.DefaultResolvers"), in("fetcher/resolve/resolve.go",
		`opts.Total = (\d+) \* time.Second`))
	f(page, "counted apart | {} |", grouped("pipeline.DefaultSilentLookups"))
	f(page, "| {} records in memory", grouped("pipeline.DefaultMaxWaiting"))
	f(page, "exchanges in flight have {} s,", seconds("pipeline.DefaultDrain"))
	f(page, "{} seconds later the store is given up", sentence(numberWords[c("scan.abortTime")/1e9]))

	page = "CONTRIBUTING.md"
	f(page, "Only Go {} is needed", goVersion)
	f(page, "Node {} and npm", in("internal/integration/duckdb/package.json", `"node": ">=(\d+)"`))
	bodies := 0.0
	for _, n := range regexp.MustCompile(`(?m)^access conditional: (\d+)$`).FindAllStringSubmatch(
		s.text("audit/testdata/frozen.txt"), -1) {
		bodies += num(n[1])
	}
	f(page, "what the audit finds in {} real", commas(int64(bodies)))

	page = "docs/README.md"
	f(page, "a first survey in ten minutes")
	f(page, `what "blocks" means: {} definitions`, definitions)

	page = "docs/archives.md"
	f(page, "A date before {}, or in the future", code("warc/replay.earliest"))
	f(page, "| `status` | `status`, `status_code`, `http_status` | of the answer; 0 or less")
	f(page,
		"| RFC 3339, `2024-07-14 12:30:00`, `20240714`, `20240714123000`, or seconds, milliseconds, microseconds or nanoseconds since 1970;")
	f(page, "and `hops` is 0")
	f(page, "a body counts as 200.")
	f(page, "or have more than {} MiB", mib("inputs.MaxRow"))
	f(page, "WARC 1.0 and 1.1, plain")
	f(page, "and exits with {}: those", code("cmd/bulkscan.exitDamaged"))
	f(page, "head may have {} KiB. Memory does not grow with captures: twice {} MiB are sorted",
		kib("warc/replay.maxHead"), mib("warc/replay.runBytes"))
	f(page, "Files are WARC 1.1 with one gzip")

	page = "docs/bot.md"
	f(page, "redirects, up to {} redirects", code("fetcher.DefaultMaxRedirects"))
	f(page, "At most {} kB of the file", plain(float64(c("parser.MaxBody"))/1000))
	f(page, "up to {} retries follow, the first after a minute", numberWords[c("fetcher.DefaultRetries")])
	f(page, "an address {}, redirects", numberWords[int(num(given("scan", "ip-rate")))])

	page = "docs/cluster.md"
	f(page, "any second an address gets at most {} R + W requests, in any ten {} R + W;",
		in("pipeline/limiter.go", `time.Second, ([\d.]+)\}`), in("pipeline/limiter.go", `10 \* time.Second, (\d+)\}`))
	f(page,
		"1.2 million shops at one address take {} hours at an `--ip-rate` of {}, and {} with a line of `--rates` that allows 200.",
		rounded(1.2e6/num(given("scan", "ip-rate"))/3600, 2), given("scan", "ip-rate"), rounded(1.2e6/200/3600, 2))
	f(page, "Take about {} shares for each task that runs at once, but make no share smaller than {} sites.",
		code("scan/shares.tasksEach"), grouped("scan/shares.leastSites"))
	f(page, "a task of 1,000 sites a second. At `--concurrency 200` a task takes {} MB, and {} MB for",
		in(memory, `concurrency 200.*?s \| (\d+) MB`), in(memory, `GOMEMLIMIT=120MiB. (\d+) MB`))
	f(page, "it to nine tenths of")
	f(page, "| {} | stopped by SIGTERM", code("cmd/bulkscan.exitAgain"))
	f(page, "| {} | a flag or variable", code("cmd/bulkscan.exitUsage"))
	f(page, "| {} | what the share has committed", code("cmd/bulkscan.exitDamaged"))
	f(page, "| 1, 137 … |")
	f(page, "ends with {} if no site of the scan answered", code("cmd/bulkscan.exitThreshold"))
	f(page, "scan.sbatch) is an array of {} shares, {} at once",
		plain(num(in("deploy/slurm/scan.sbatch", `array=0-(\d+)%`))+1),
		numberWords[int(num(in("deploy/slurm/scan.sbatch", `array=0-\d+%(\d+)`)))])
	f(page, "an Indexed Job of {} shares, {} at once", in("deploy/kubernetes/scan.yaml", `completions: (\d+)`),
		numberWords[int(num(in("deploy/kubernetes/scan.yaml", `parallelism: (\d+)`)))])

	page = "docs/configuration.md"
	f(page, "elsewhere a line every {} s", seconds("terminal.logInterval"))
	f(page, "hosts of a domain with 20 that share an address with 10 get 10.")
	f(page, "a part of a /{} are errors", in("pipeline/level.go", `An IPv6 address stands for its /(\d+)`))
	f(page, "may have {} entries", grouped("inputs.maxRates"))

	page = "docs/cookbook.md"
	definitionRows := in(page, `(?s)\|--:\|--:\|--:\|\n(.*?)\n\n## DuckDB`)
	if runtime.GOOS == "linux" { // elsewhere a few hosts of the simulated web end otherwise
		shares := demoShares(t, demoDataset(t))
		definitionRows = strings.TrimSpace(definitionTable(shares))
		f(page, "```text {…} … ```", strings.TrimSpace(barTable(shares)))
	}
	f(page, "| definition | blocking | of | percent | |---|--:|--:|--:| {…} ## DuckDB", definitionRows)

	page = "docs/dataset.md"
	f(page, "the first 64 bits of the SHA-256")
	f(page, "each of the {} definitions", definitions)
	f(page, "`rank_bucket(rank)`, 1000, 10000 and so on")
	f(page, "round numbers beyond 2⁵³")
	f(page, "each line within {} bytes", plain(float64(c("sink/jsonlines.shortLine"))))
	copied := in("sink/views/analyses.sql", `86400000 <= (\d+) THEN 'stale'`)
	failing := in("sink/views/analyses.sql", `OR days > (\d+) THEN 'expired'`)
	f(page, "drops the copy after {} days of failures", copied)
	f(page, "the copy is at most {} days old", copied)
	f(page, "the failures have lasted more than {} days (", failing)
	f(page, "the {} days begin with the copy, but at most 24 hours", copied)
	f(page, "for `--grace` ({} s)", seconds("cmd/bulkscan.defaultGrace"))
	readers := "internal/integration/readers/package.json"
	f(page, "DuckDB {}, Polars (nodejs-polars {}), and hyparquet {} with hyparquet-compressors {}.",
		in("internal/integration/duckdb/package.json", `node-api": "([\d.]+)-`), in(readers, `nodejs-polars": "([\d.]+)"`),
		in(readers, `hyparquet": "([\d.]+)"`), in(readers, `compressors": "([\d.]+)"`))
	f(page, "If anything is damaged, the exit code is {}.", code("cmd/bulkscan.exitDamaged"))
	f(page, "The exit code is {} if", code("cmd/bulkscan.exitDamaged"))
	f(page, "the exit code is {}; when", code("cmd/bulkscan.exitDamaged"))
	f(page, "parts of {} MiB by copying pages: {} million rows",
		mib("sink/compact.DefaultPartBytes"), in(first, `merging parts: (\d+) million rows`))
	f(page, "one part per processor, at most {}. Repeated bodies of a part beyond {} MiB",
		numberWords[c("sink/reaudit.maxWorkers")], mib("sink/reaudit.holdBodies"))

	page = "docs/definitions.md"
	f(page, "{} definitions of *this", sentence(definitions))
	f(page, "have all {},", definitions)
	f(page, "the other {} of those", numberWords[len(survey.DefinitionNames())-1])
	f(page, "DuckDB 1.3 or later")
	f(page, "more than {} records", grouped("parser.maxRecords"))

	page = "docs/diff.md"
	f(page, "with the exit code {} if", code("cmd/bulkscan.exitThreshold"))

	page = "docs/divergences.md"
	f(page, "Octets of a line past {} are", grouped("parser.maxLine"))
	f(page, "A file's first {} different statements count, of which at most {} for", code("audit.maxSignalFacts"),
		code("audit.maxSignalElsewhere"))
	f(page, "{} are followed, across hosts", sentence(numberWords[c("fetcher.DefaultMaxRedirects")]))
	f(page, "Statuses below 200 or above")
	f(page, "good for {} hours, which", rounded(num(in("sink/views/analyses.sql", `least\((\d+),`))/3600, 2))
	f(page, "failures have lasted more than {} days. What holds after {} days", failing, copied)
	f(page, "has no restrictions after {} days", copied)
	f(page, "the edition of 2021 for 30 days, the later pages for 12 hours")
	f(page, "{} octets of the decoded body", grouped("parser.MaxBody"))
	f(page, "`rfc` departs from ten cases that are not marked as Google's own: six about")
	f(page, "windows above {} MiB", mib("fetcher.maxWindow"))
	f(page, "the file, then 226 or 250 | 200 |")
	f(page, "| 550 about")
	f(page, "such as 530 at login | 500, retried")
	f(page, "Replies above {} KiB", kib("fetcher.maxReplies"))

	page = "docs/first-survey.md"
	f(page, "A first survey in ten minutes")
	f(page,
		"for step 5, and a network. Without one, `bulkscan demo -o survey` stands for steps 1 to 3: it surveys made-up sites, of which the first is `{}`. Ask for that one instead of google.com in step 4.", firstOfDemo(t))
	f(page, "first 1,000 sites")

	page = "docs/CURL.md"
	f(page, "are read as curl {} reads", in("fetcher/readings_test.go", `curlVersion = "([\d.]+)"`))
	f(page, "a version that is not 1.0, 1.1 or 2 | any digit, point, digit is read as 1.1 |")
	f(page, "up to {} are skipped", numberWords[c("fetcher.maxLeading")])
	f(page, "from 600 to 999")
	f(page, "a body behind 205")
	f(page, "more than {} interim responses", numberWords[c("fetcher.maxInterim")])
	f(page, "a head of more than {} KiB | `header_too_large` | read up to 300 KB", kib("fetcher.maxHead"))
	f(page, "decoded, up to five")
	f(page, "a length of 2⁶³")

	page = "docs/CHECKS.md"
	f(page, "# The check `robots.txt` {} <!--", audit.CheckVersion)

	page = "docs/history.md"
	f(page, "A million sites and {} nights are some {} MB", in(third, `A million sites, (\d+) nights merged`),
		in(third, `policies, (\d+) MB`))

	page = "docs/history.md"
	f(page, "its first {} lines, {} bytes of each", code("history.maxDiff"), code("audit.MaxEvidenceValue"))

	page = "docs/inputs.md"
	f(page, "at most {} bytes, goes", code("inputs.MaxLabel"))
	f(page, "a number of more than {} digits is no rank", in("inputs/record.go", `maxNumber = 1e(\d+)`))
	f(page, "`--dry-run` ends with {}.", code("cmd/bulkscan.exitUsage"))
	f(page, "for each of up to {} labels", grouped("survey/stats.maxLabels"))
	f(page, "The first {} lines, up to {} KiB, decide", code("inputs.sampleLines"), kib("inputs.headBytes"))
	f(page, "pages of more than {} MiB, {} million values or a header of {} MiB", mib("sink/table.maxPage"),
		mib("sink/table.maxPageValues"), mib("sink/table.maxPageHeader"))
	f(page, "at most {} bytes of text", code("inputs.MaxText"))
	f(page, "Each origin takes {} to {} bytes of memory. {}-bit hashes", in("inputs/dedupe_test.go", `perEntry < (\d+)`),
		in("inputs/dedupe_test.go", `perEntry > (\d+)`),
		in("inputs/dedupe.go", `held as (\d+)-bit hashes`))

	page = "docs/install.md"
	f(page, "needs Go {} and", goVersion)
	f(page, "runs as user {}, needs", in("Dockerfile", `USER (\d+):`))
	f(page, "belongs to user {}; leave", in("Dockerfile", `chown=(\d+):`))

	page = "docs/head.md"
	f(page, "the exit code is {}.", code("cmd/bulkscan.exitDamaged"))
	f(page, "The last {} heads stay", code("sink/commit.heads"))

	page = "docs/nightly.md"
	f(page, "| `held` | its figures are unusual, or its date is in doubt; readers do not find it | {} |",
		code("cmd/bulkscan.exitThreshold"))
	f(page, "outside index and history | {} |", code("cmd/bulkscan.exitThreshold"))
	f(page, "| {}, {} | the next run continues it, until its deadline or for {} hours", code("cmd/bulkscan.exitInt"),
		code("cmd/bulkscan.exitTerm"), plain(float64(c("nightly.resumeTime"))/3600e9))
	f(page, "ends at once with {}.", code("cmd/bulkscan.exitAgain"))
	f(page, "server by more than {} hours fails the night", plain(float64(c("nightly.maxSkew"))/3600e9))
	f(page, "the last {} published nights", code("nightly.learnFrom"))
	f(page, "the largest of: {} percentage points ({} at one network), {} times their spread, {} standard deviations",
		rounded(100*s.fraction("nightly.floor"), 2), rounded(100*s.fraction("nightly.floorOfCDN"), 2),
		numberWords[c("nightly.spread")], numberWords[c("nightly.sampling")])
	f(page, "prints the last {} nights as", code("cmd/bulkscan.shownNights"))
	f(page, "the {} tokens that changed most. It is tried {} times", numberWords[c("nightly.maxTokens")],
		numberWords[c("nightly.tellRetries")+1])
	f(page, "keeps, at most {} MiB of them", mib("cmd/bulkscan.keptBytes"))
	f(page, "(`least = {}`), and one", given("nightly", "least"))
	year, stays := num(in(month, `a million sites of this web \| ([\d.]+)`)), num(in(month, `history \| ([\d.]+)`))
	f(page, "month.md) takes {} GB, of which {} GB are its few distinct", rounded(year, 2),
		in(month, `these, bodies \| ([\d.]+)`))
	f(page, "the nights take {} GB, and the history {} GB a year", rounded((year-stays)*90/365, 2), plain(stays))

	page = "docs/outcomes.md"
	f(page, "(`closed_early` with 200 has no file)")
	f(page, "or silent for {} s, the next", seconds("fetcher.leastConnect"))
	f(page, "up to {} times per origin", numberWords[c("pipeline.maxSpoilt")])
	f(page,
		"({} s with `--ip-rate 0`) doubles with each such answer to a request sent since the last doubling, up to {} times and {} s,", seconds("pipeline.firstSlowInterval"), plain(float64(int(1)<<c("pipeline.maxDoublings"))), seconds("pipeline.maxSlowInterval"))
	f(page, "are 127.0.0.1, hence")
	f(page, "numbers below 16777216")
	f(page, "A look-up has {} s in all", in("fetcher/resolve/resolve.go", `opts.Total = (\d+) \* time.Second`))

	page = "docs/parser.md"
	f(page, "Follow five, to other")
	f(page, "Parse reads {} KiB", kib("parser.MaxBody"))
	f(page, "**24 hours.**")
	f(page, "After 30 days of failures")
	f(page, "up to thirty years")
	f(page, "| v1.1.2 | here |")
	f(page, "| status 3xx, below 200, above")

	page = "docs/report.md"
	f(page, "fewer than {} sites are flagged, those of fewer than {} make", code("survey.FewSites"),
		code("survey.LeastGroup"))
	f(page,
		"has the newest {} changes.", code("survey/tables.ShownChanges"))
	f(page, "has the newest {} of all AI tokens", grouped("history.MostChanges"))
	f(page, "only the {} most frequent", code("survey/tables.mostShown"))
	f(page, "Five figures come first")

	page = "docs/resuming.md"
	f(page, "may finish ({} s at most)", seconds("pipeline.DefaultDrain"))
	f(page, "ends with {} and is not [published]", code("cmd/bulkscan.exitThreshold"))
	f(page, "The store has {} seconds to commit", numberWords[c("scan.abortTime")/1e9])
	f(page, "A part is {} origins or {} minutes", grouped("sink.DefaultPartRows"),
		numberWords[c("sink.DefaultPartAge")/60e9])
	f(page, "change nothing, and exit with {}.", code("cmd/bulkscan.exitDamaged"))
	f(page, "Linux 2.6.12 or later")
	f(page, "on NFS 4 after 90 s")

	page = "docs/cluster.md"
	sizes, tasks := []float64{10e6, 100e6, 300e6}, []float64{1, 8, 16}
	each, line := float64(c("scan/shares.tasksEach")), num(in(fifth, `share takes ([\d.]+) µs instead`))
	bytesOf := num(in(first, `A million files take (\d+) MB`)) + (num(in(first, `(\d+) to \d+ MB in .evidence`))+
		num(in(first, `to (\d+) MB in .evidence`)))/2 + num(in(first, `(\d+) MB in .bodies`))
	one, ten := num(in(fourth, `one part made (\d+) requests`)), num(in(fourth, `with ten parts (\d+)`))
	minute := 60e9/float64(c("store/s3.DefaultLease"))*float64(c("store/s3.beatsInLease")) +
		60e9/float64(c("scan.reportEvery"))
	const partRows, speed = 10_000, 1_000
	f(page, "with parts of 10,000 sites. It is **assumed** that a task with `--concurrency 1000` scans 1,000 sites a second.")
	f(page, "| 10 million | 100 million | 300 million |")
	row := func(text, unit string, value func(sites, tasks, shares, hours float64) string) {
		var cells []string
		for i, sites := range sizes {
			cells = append(cells, value(sites, tasks[i], each*tasks[i], sites/tasks[i]/speed/3600))
		}
		f(page, text+strings.ReplaceAll(" | {} | {} | {} |", "}", "}"+unit), cells...)
	}
	row("(`--workers`)", "", func(_, tasks, _, _ float64) string { return plain(tasks) })
	row("| shares, 16 for each", "", func(_, _, shares, _ float64) string { return plain(shares) })
	row("is the bound", "", func(_, _, _, hours float64) string { return rounded(hours, 2) })
	row("fetching and judging", "", func(sites, _, _, _ float64) string {
		return fmt.Sprintf("%.1f",
			sites*num(perSite)*10e-6/3600)
	})
	row("in every share", "", func(sites, _, shares, _ float64) string { return rounded(sites*shares*line*1e-6/3600, 2) })
	row("| requests to the store", "", func(sites, tasks, shares, hours float64) string {
		parts := sites / partRows
		return commas(int64(num(rounded((shares*one+(parts-shares)*(ten-one)/9+minute*60*hours*tasks)/1e3, 2)) * 1e3))
	})
	row("| bytes", " GB", func(sites, _, _, _ float64) string { return rounded(sites*bytesOf/1e9, 2) })
	f(page, "Slurm 1,001 unless `MaxArraySize` is larger, AWS Batch 10,000, bulkscan {}.", grouped("scan/shares.Max"))
	rate := num(in(first, `Statistics: ([\d.]+) million sites`))
	f(page, "({} million sites a second: {} minutes for 300 million)", plain(rate), rounded(300/rate/60, 2))
	f(page, "in eight shares, killed {} times on two processors: every row true", in(fifth, `tasks were killed (\d+) times`))

	page = "docs/storage.md"
	f(page, "`BULKSCAN_S3_LEASE` | {}s |", seconds("store/s3.DefaultLease"))
	f(page, "given up after {} seconds; a connection on which nothing moves is replaced after {} s.",
		numberWords[int(num(in("store/s3/config.go", `firstPatience = (\d+) \* time.Second`)))],
		seconds("store/s3.DefaultStall"))
	f(page, "temporary files of {} MiB, nine at most: {} MiB", mib("store/s3.DefaultPartSize"),
		plain(9*float64(c("store/s3.DefaultPartSize"))/(1<<20)))
	f(page, "Reading keeps {} MiB",
		plain(float64(c("store/s3.maxBlocks")*c("store/s3.blockSize"))/(1<<20)))
	lease := c("store/s3.DefaultLease") / 1e9
	f(page, "a lease of {} seconds, renewed every {}.", plain(float64(lease)),
		numberWords[lease/c("store/s3.beatsInLease")])

	page = "SECURITY.md"
	f(page, "answer within seven days")

	page = "docs/summary.md"
	f(page, "`--category` (default `{}`, `all`", given("summary", "category"))
	f(page, "takes a [definition](definitions.md), by default `{}`", given("summary", "definition"))
	f(page, "Files and pipes get {} columns", code("terminal.pipeWidth"))
	f(page, "need {} sites in the group", code("survey.LeastGroup"))
	f(page, "fewer than {} is flagged", code("survey.FewSites"))
	f(page, "sampling interval at {} %", in("survey/uncertainty.go", `interval of k of n sites at (\d+) %`))
	f(page, "for every file that {} domains", code("survey/summary.sharedBy"))
	page = "docs/FIELDS.md"
	f(page, "| {} bins of asked rows", numberWords[c("survey/summary.scoreBins")])
	f(page, "total_ms of answered rows, within {} %", in("survey/histogram_test.go", `want %v within (\d+) %%`))
	return all
}

// firstOfDemo is the first site of the demo's list.
func firstOfDemo(t *testing.T) string {
	t.Helper()
	for _, host := range simweb.Names(demoSeed(t), 1) {
		return host
	}
	return ""
}

// numberWords are small numbers as the documents write them.
var numberWords = strings.Fields(
	"none one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen")

// sentence begins a sentence.
func sentence(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// plain is a number without separators.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// rounded is a number to so many digits.
func rounded(v float64, digits int) string {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64) // it is a number
	return plain(short)
}

// commas is a whole number with separators.
func commas(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// queryNames are the ready-made analyses.
func queryNames(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("../../docs/queries/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	return names
}
