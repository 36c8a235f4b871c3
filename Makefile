# Only Go is needed to build, test and try bulkscan; `race` needs a C compiler, `integration` and `packages` need npm and Node,
# and `browser` and `gallery` Chromium as well.
# The tools of `lint` and `bench` are pinned in go.tools.mod, and the S3 server that tests ask in go.versitygw.mod, apart
# from what bulkscan itself is made of; they are built into .bin once.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION)

# A bulkscan is one file without C in it. Only the race detector asks for a compiler.
export CGO_ENABLED := 0

# With -trimpath no path of this machine is in what is compiled, so that builds, tests, checks for other systems and other clones
# share it. `lint` runs vet. Without debugging information, test programs are linked in half the time.
SHARED  := -trimpath -vet=off -ldflags=-w
GIVEN   := $(filter-out $(SHARED),$(GOFLAGS))
export GOFLAGS := $(strip $(GIVEN) $(SHARED))

# What `make check` does, in order, each with the seconds that two processors have for it. .ci/run runs the README's two commands
# first, in a bare clone, so that `test` is not among them. CONTRIBUTING.md says what `long` covers besides.
STEPS := build:10 lint:75 race:200 histories:40 corpora:40 real:80 generated:10 integration:150 browser:90 packages:100

# Where goroutines share memory, and so where the race detector pays: these packages, those tests of sink and scan in which more
# than one goroutine writes or reads, and those of the command in which a scan is at work. Under the detector a test takes ten times as long. So left out are sweeps over every kill, fault and night, one after
# another; large bodies, and counts of allocations; scans of ten thousand hosts and more, whose short siblings take the same paths;
# and processes that do one thing each.
RACED         := ./pipeline ./fetcher ./fetcher/resolve ./sink/jsonlines ./sink/reaudit ./store ./store/s3 ./nightly \
	$(if $(ALL),./fetcher/... ./sink/... ./store/... ./scan)
SWEEPS        := Killed|TestLost$$|Damaged|LeftNight|TestBombs|MemoryInFlight|Allocat|LateHeads|MissedNights|WrongClock|TestKeep|UnitHowever|UnitAfter|Annexed|ShareRepair
LONG_LISTS    := StarvesNoAddress|HoldUpTheOthers|DelaysNobodyElse|SocketsAreBounded|BatchesRotate|ManySilent
RACED_SINK    := ^Test(Ahead|CompactUnder|CompactWhile|ErrorSticks|Abort|StoreError|FenceOf|CommitsOfABusy|OneWriter|Resume|Shards|ReaderAcross|RoundTrip|Verify.*While|PartAge|GiveUp|FlushTooLate|Rejects|GoOn|CommitGivesUp|Pruned|Waits|Publications)
RACED_COMMAND := ^Test(Scan|Interrupt|Share|SecondInterrupt|CompactInterrupted|Metrics|Rates|CPUProfile|HostileScan|HostileObjectStore|Throttled)

# Documents that are written from tables in the code, or have figures that are.
GENERATED := $(wildcard *.md docs/*.md) docs/queries/README.md docs/gallery/check.svg

# A folder in memory, if there is one with room that may hold programs, too (a container's often has 64 MB). Tests write and
# sync thousands of small files, and simulate the loss of power themselves: no test needs a disk.
in_memory = $(shell [[ -w /dev/shm && $$(df -Pk /dev/shm | awk 'END {print $$4}') -ge 2097152 ]] && \
	! grep -q '^[^ ]* /dev/shm [^ ]* [^ ]*noexec' /proc/mounts && echo /dev/shm)
test long starved race histories corpora: export TMPDIR ?= $(in_memory)

# Much of the tests' time is waiting, so twice as many packages are tested at once as there are processors; and a test's heap is
# small, so it is collected less often.
test long starved race histories corpora: export GOGC := 400
TESTFLAGS = -p $$((2 * $$(getconf _NPROCESSORS_ONLN)))

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/bulkscan (GOOS=windows GOARCH=arm64 OUT=bulkscan.exe VERSION=v1.0.0)
	go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(or $(OUT),bin/bulkscan) ./cmd/bulkscan

.PHONY: share
share: build ## write man pages and completions of shells to bin/share
	rm -rf bin/share; mkdir -p bin/share/completions
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null) bin/bulkscan man -o bin/share/man/man1
	bin/bulkscan completion bash > bin/share/completions/bulkscan.bash
	bin/bulkscan completion zsh > bin/share/completions/_bulkscan
	bin/bulkscan completion fish > bin/share/completions/bulkscan.fish
	bin/bulkscan completion powershell > bin/share/completions/bulkscan.ps1

.PHONY: demo
demo: build ## scan a simulated web on this machine, without a network
	bin/bulkscan demo -o bulkscan-demo

.PHONY: test
test: ## run the tests, but for those that take long
	go test -short $(TESTFLAGS) ./...
	@[[ -x .bin/versitygw ]] || echo "SKIPPED: what needs a real S3 server (make .bin/versitygw builds one)"
	@[[ -d internal/integration/duckdb/node_modules ]] || echo "SKIPPED: what needs DuckDB (make internal/integration/duckdb/node_modules installs it; make integration runs it)"
	@command -v slurmctld >/dev/null || echo "SKIPPED: what needs Slurm (apt-get install slurmctld slurmd slurm-client munge; make real runs it)"
	@command -v curl >/dev/null || echo "SKIPPED: whether responses are read as curl reads them (curl is not on the PATH)"
	@[[ -d ../shared ]] || echo "SKIPPED: what needs the real files and cases of ../shared, which is not here (go test -v says which tests)"

.PHONY: long
long: ## run all tests, and what other steps leave to it (ALL=1): CONTRIBUTING.md lists it
	go test -timeout 20m $(TESTFLAGS) ./...
	$(MAKE) --no-print-directory race lint integration packages ALL=1

# At idle priority a test gets nothing while the loops hold every processor, which they do for a second of every three.
.PHONY: starved
starved: ## run the tests of `make test` 20 times on a machine that stops them for a second again and again (RUNS=n, PACKAGES=./...)
	@for processor in $$(seq $$(getconf _NPROCESSORS_ONLN)); do \
		while :; do timeout 1 sh -c 'while :; do :; done' || sleep 2; done & \
	done; trap 'kill $$(jobs -p)' EXIT; \
	go test -short -count $(or $(RUNS),20) -timeout 4h -exec 'chrt -i 0' $(TESTFLAGS) $(or $(PACKAGES),./...)

.PHONY: race
race: ## run the tests of what is concurrent under the race detector
	CGO_ENABLED=1 go test -race -short -timeout 20m $(if $(ALL),,-skip '$(SWEEPS)|$(LONG_LISTS)') $(RACED)
	$(if $(ALL),,CGO_ENABLED=1 go test -race -short -timeout 20m -run '$(RACED_SINK)' ./sink ./scan)
	CGO_ENABLED=1 go test -race -short -timeout 20m $(if $(ALL),,-run '$(RACED_COMMAND)') ./cmd/bulkscan

.PHONY: histories
histories: ## play histories of a dataset, with kills, losses of power and repairs, against one oracle (COUNT=28)
	go test -count 1 -run '^TestHistories$$' ./internal/histories -histories $(or $(COUNT),28)

.PHONY: corpora
corpora: ## run the tests of real files and conformance cases in ../shared, which a bare clone does not have beside it
	@if [[ -d ../shared ]]; then \
		go test -short -count 1 $(TESTFLAGS) $$(grep -rl internal/sharedtest --include='*_test.go' * | xargs dirname | sort -u | grep -v '^internal/integration\|^cmd\|^bench' | sed 's|^|./|'); \
		go test -short -count 1 -run '^TestCases' ./cmd/bulkscan; \
	else echo "SKIPPED: what needs the real files and cases of ../shared, which is not here"; fi

.PHONY: real
real: ## run the tests of real clusters, shells, and killed and stopped processes, one after another
	go test -count 1 -timeout 10m -p 1 -run '^(TestSlurm|TestCompletionInShells|TestStoppedScanGoesOn|TestKilledScanResumes|TestKilledReplayResumes|TestHostilePages)$$' ./cmd/bulkscan

.PHONY: lint
lint: .bin/golangci-lint ## run golangci-lint, which runs vet and staticcheck
	.bin/golangci-lint run --allow-parallel-runners
	$(if $(ALL),cd bench && ../.bin/golangci-lint run --allow-parallel-runners)

.PHONY: fmt
fmt: .bin/golangci-lint ## format the source
	.bin/golangci-lint fmt

.PHONY: generate
generate: ## write the generated documents anew
	go test ./sink/schema -run '^TestSchemaDocument$$' -update
	go test ./audit -run 'Docs' -update
	go test ./fetcher -run '^TestReadings$$/^document$$' -update
	go test ./terminal/metrics -run '^TestDocument$$' -update
	go test ./simweb -run '^TestOutcomesDocument$$' -update
	go test ./internal/integration/queries -run '^TestReadme$$' -update
	go test ./cmd/bulkscan -run '^(TestFigures|TestShownOutput|TestFieldsDocument)$$' -update
	@if command -v node >/dev/null; then $(MAKE) --no-print-directory docs/gallery/check.svg; else echo "SKIPPED: docs/gallery/check.svg (node is not on the PATH)"; fi

.PHONY: generated
generated: ## fail if a generated document is out of date
	@before=$$(cksum $(GENERATED)); $(MAKE) --no-print-directory generate; \
	if [[ "$$before" != "$$(cksum $(GENERATED))" ]]; then \
		echo "Generated documents were out of date and have been written anew: commit them."; git diff --stat -- $(GENERATED); exit 1; \
	fi

# Each of the two halves keeps one processor busy, mostly.
.PHONY: integration scanned asked
integration: build internal/integration/duckdb/node_modules internal/integration/readers/node_modules internal/integration/warcio/node_modules .bin/versitygw .bin/python/installed ## scan the simulated web, also killed, read datasets and archive with DuckDB, Polars, hyparquet, warcio, Python and R (ALL=1: also try the experiments of bench, small)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync scanned asked

scanned:
	@also() { [[ -z "$(ALL)" ]] || "$$@"; }; \
	dir=$$(mktemp -d); killed=$$(mktemp -d); kept=$$(mktemp -d); trap 'rm -rf "$$dir" "$$killed" "$$kept"' EXIT; \
	bin/bulkscan demo -o "$$dir" --warc-out "$$kept" --origins 2000 --part-rows 50 --no-compact; \
	node internal/integration/warcio/check.mjs "$$kept" 1500; \
	bin/bulkscan import "$$kept"/*.warc.gz --date "$$(date -u +%F)" -o "$$kept/again" --scan-id again --progress none; \
	bin/bulkscan verify "$$kept/again"; \
	ln -s "$$dir" "$$kept/OUT"; \
	if command -v python3 >/dev/null; then PYTHONPATH="$$PWD/.bin/python" python3 internal/integration/python/check.py "$$kept"; else echo "SKIPPED: the Python of the documents (python3 is not on the PATH)"; fi; \
	if command -v Rscript >/dev/null; then Rscript internal/integration/r/check.R "$$kept"; else echo "SKIPPED: the R of the documents (Rscript is not on the PATH)"; fi; \
	bin/bulkscan import "$$kept"/*.warc.gz --date "$$(date -u +%F)" -o - --scan-id again --progress none > "$$kept/lines.jsonl"; \
	bin/bulkscan schema --json > "$$kept/schema.json"; \
	node internal/integration/readers/check.mjs "$$kept/schema.json" "$$kept/again" --lines "$$kept/lines.jsonl"; \
	also node internal/integration/readers/check.mjs "$$kept/schema.json" "$$dir"; \
	READERS_DATASET="$$kept/hard" go test -count 1 -run '^TestHardDataset$$' ./sink; \
	node internal/integration/readers/check.mjs "$$kept/schema.json" "$$kept/hard" --rows "$$kept/hard-rows"; \
	node internal/integration/readers/lists.mjs "$$kept/lists"; \
	LISTS_WRITTEN="$$kept/lists" go test -count 1 -run '^TestWrittenLists$$' ./sink/table; \
	bin/bulkscan compact "$$kept/hard"; \
	node internal/integration/readers/check.mjs "$$kept/schema.json" "$$kept/hard" --rows "$$kept/hard-rows"; \
	also node internal/integration/duckdb/check.mjs "$$dir" "$$dir/truth.jsonl"; \
	REPORT_DATASET="$$dir" BULKSCAN_TEST_DUCKDB=required go test -count 1 -run '^TestGivenTables$$' ./internal/integration/queries; \
	node internal/integration/duckdb/views.mjs "$$dir" bin/bulkscan; \
	node internal/integration/duckdb/check.mjs "$$dir" "$$dir/truth.jsonl"; \
	also node internal/integration/readers/check.mjs "$$kept/schema.json" "$$dir"; \
	bin/bulkscan verify "$$dir"; \
	HOSTILE_DATASET="$$dir/hostile" go test -count 1 -run '^TestHostileScan$$' ./cmd/bulkscan; \
	node internal/integration/duckdb/check.mjs "$$dir/hostile"; \
	node internal/integration/readers/check.mjs "$$kept/schema.json" "$$dir/hostile"; \
	go build -o "$$killed/simweb" ./simweb/cmd/simweb; \
	node internal/integration/duckdb/killed.mjs "$$killed/out" bin/bulkscan "$$killed/simweb"; \
	node internal/integration/duckdb/check.mjs "$$killed/out" "$$killed/out/truth.jsonl"; \
	bin/bulkscan verify "$$killed/out"

asked:
	BULKSCAN_TEST_DUCKDB=required go test -count 1 -timeout 20m ./internal/integration/queries
	BULKSCAN_TEST_S3=required BULKSCAN_TEST_DUCKDB=required go test -count 1 -run '^(TestViewsOnS3|TestCookbookInDuckDB)$$' ./cmd/bulkscan
	go -C bench test -count 1 -parallel 4 $(if $(ALL),./...,-short ./cmd/...)
	$(if $(ALL),go -C deploy/kubernetes test -count 1 ./...)

# The documents' Python needs packages. Where pip cannot install them, those of the machine are taken, and what it lacks is SKIPPED.
.bin/python/installed: internal/integration/python/requirements.txt
	@rm -rf $(@D); if timeout 90 python3 -m pip install --quiet --disable-pip-version-check --retries 0 --timeout 5 --target $(@D) -r $< >/dev/null 2>&1; \
		then touch $@; else rm -rf $(@D); echo "SKIPPED: the versions of $< (pip cannot install them)"; fi

# Without DATASET, the reports are those of the demo, of an empty list, of a hostile web, of half a year and of an archive.
.PHONY: browser
browser: export CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
browser: build internal/integration/browser/node_modules ## open report pages in Chromium, and use them (DATASET=folder)
	@[[ -n "$$CHROMIUM" ]] || { echo "SKIPPED: what needs a browser (apt-get install chromium installs one)"; exit 0; }; \
	dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	if [[ -n "$(DATASET)" ]]; then \
		bin/bulkscan report "$(DATASET)" -o "$$dir/dataset.html"; \
	else \
		bin/bulkscan demo -o "$$dir/demo" --origins 2000 > "$$dir/log"; \
		: > "$$dir/list.csv"; bin/bulkscan scan "$$dir/list.csv" -o "$$dir/empty" --progress none --allow-empty 2> "$$dir/log"; \
		HOSTILE_DATASET="$$dir/hostile" go test -count 1 -run '^TestHostileScan$$' ./cmd/bulkscan; \
		NIGHTS_DATASET="$$dir/nights" go test -count 1 -run '^TestNightsDataset$$' ./internal/integration/queries; \
		mkdir "$$dir/shown"; SHOWN_DATASETS="$$dir/shown" go test -short -count 1 -run '^TestShownPages$$' ./cmd/bulkscan; mv "$$dir/shown/archive" "$$dir/archive"; \
		for name in demo empty hostile nights archive; do bin/bulkscan report "$$dir/$$name" -o "$$dir/$$name.html"; done; \
	fi; \
	printf '%s\0' "$$dir"/*.html | xargs -0 -n 3 -P 2 node internal/integration/browser/check.mjs

.PHONY: gallery
gallery: export CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
gallery: build internal/integration/browser/node_modules ## make the pictures of docs/gallery anew, from the demo (DATASET=folder)
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	[[ -n "$(DATASET)" ]] || bin/bulkscan demo -o "$$dir/demo" > "$$dir/log"; \
	bin/bulkscan report "$(or $(DATASET),$$dir/demo)" -o "$$dir/report.html"; \
	node internal/integration/browser/gallery.mjs "$$dir/report.html" docs/gallery
	@$(MAKE) --no-print-directory docs/gallery/check.svg docs/gallery/named.svg

# README's picture of real files: the archive is not part of the project.
.PHONY: docs/gallery/named.svg
docs/gallery/named.svg: build internal/integration/duckdb/node_modules
	@if [[ ! -e ../shared/corpus/panel.jsonl.zst ]]; then echo "SKIPPED: $@ (../shared is not here)"; exit 0; fi; \
	dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	bin/bulkscan import ../shared/corpus/panel.jsonl.zst -o "$$dir/out" --progress none 2> "$$dir/log"; \
	node internal/integration/duckdb/named.mjs "$$dir/out" "$$PWD/docs/gallery"

.PHONY: docs/gallery/check.svg
docs/gallery/check.svg: build
	@cd docs/gallery; ../../bin/bulkscan check robots.txt --color always | \
		node ../../internal/integration/browser/terminal.mjs 'bulkscan check robots.txt' 36 > check.svg

.PHONY: packages
packages: export LDFLAGS := $(LDFLAGS)
packages: share internal/integration/packages/node_modules .bin/actionlint .bin/cyclonedx-gomod ## check what is given away: platforms, same bytes twice, man pages, the image's claims, workflows (PLATFORMS=os/arch …)
	internal/integration/packages/check.sh

# goreleaser takes a program's flags from here, so that a release is what `make build` makes of its tag.
.PHONY: snapshot
snapshot: export LDFLAGS := $(LDFLAGS)
snapshot: .bin/goreleaser .bin/cyclonedx-gomod ## build the files of a release for all platforms into dist, and publish nothing
	.bin/goreleaser check
	PATH="$$PWD/.bin:$$PATH" .bin/goreleaser release --snapshot --clean

.PHONY: release
release: export LDFLAGS := $(LDFLAGS)
release: .bin/goreleaser .bin/cyclonedx-gomod ## publish the release of a tag; needs GITHUB_TOKEN (DRY_RUN=1: make its files into dist, and publish nothing)
	@awk '$$0 == "## $(VERSION)" {found = 1; next} /^## / && found {exit} /^Not released yet/ && found {unsaid = 1} END {exit !found || unsaid}' CHANGELOG.md || \
		{ echo "CHANGELOG.md has no section \"## $(VERSION)\", or the section says \"Not released yet\": give it its date, commit, tag that commit, and keep the folder clean"; exit 1; }
	PATH="$$PWD/.bin:$$PATH" .bin/goreleaser release --clean $(if $(DRY_RUN),--skip=publish)

.PHONY: tagged
tagged: ## install the last commit by `go install` as if it had a tag, from a copy of this repository
	internal/integration/packages/tagged.sh

.PHONY: fuzz
fuzz: ## fuzz each target for some seconds (FUZZTIME=5s)
	@for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(or $(FUZZTIME),5s) -fuzzminimizetime 10x "$$package"; \
		done; \
	done

.PHONY: bench
bench: .bin/benchstat ## run the benchmarks of the packages (BENCH=regexp, COUNT=n) and summarise them
	go test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem -count $(or $(COUNT),1) ./... | tee bench.out
	.bin/benchstat bench.out

# In one run of a test program the repetitions of a benchmark follow one another; in several, contenders take turns.
.PHONY: compare
compare: .bin/benchstat ## compare parser, fetcher, resolver and writer with others, and time archives and queries (BENCH=Parsers|Transport|Lookups|Parquet|Archives|Reaudit|Queries|History, TIME=1s, COUNT=n)
	for turn in $$(seq $(or $(COUNT),1)); do \
		go -C bench test -run '^$$' -bench '$(or $(BENCH),.)' -benchtime $(or $(TIME),1s) -timeout 1h .; \
	done | tee bench.out
	.bin/benchstat -table .name -col /by bench.out

.PHONY: bench-whole
MACHINE ?= $(shell grep -om1 -i 'epyc\|xeon\|core\|ryzen' /proc/cpuinfo | tr A-Z a-z)-$(shell nproc)cpu
bench-whole: RESULT = bench/results/$(shell date -u +%F)-$(MACHINE)
bench-whole: ## processor time of a whole scan beside the floor, other clients and an earlier version, in turns, into bench/results (REF=commit, RUNS=5, SCALE=1)
	mkdir -p $(RESULT)
	go -C bench run ./cmd/endtoend -only whole -runs $(or $(RUNS),5) -scale $(or $(SCALE),1) -ref "$(REF)" | tee $(RESULT)/whole.md

.PHONY: shares
shares: ## scan a million origins by one process, in eight shares one after another, and at once, killed 20 times, beside eight scans without shares (SCALE=1)
	go -C bench run ./cmd/endtoend -only shares -scale $(or $(SCALE),1) -scan "--part-rows 10000"

# A check that finds no server fails; other runs skip what needs one.
.PHONY: check
check: export BULKSCAN_TEST_S3 := required
check: .bin/versitygw ## all that must hold before a change is merged; what CI runs
	@for step in $(STEPS); do \
		echo "=== $${step%:*}"; begun=$$SECONDS; \
		$(MAKE) --no-print-directory "$${step%:*}"; \
		echo "=== $${step%:*}: ok, $$((SECONDS - begun)) s of $${step#*:}"; \
	done

.PHONY: clean
clean: ## remove what make has built
	rm -rf bin .bin dist internal/integration/{browser,duckdb,packages,readers,warcio}/node_modules bulkscan-demo bench.out

.bin/%: export GOFLAGS := $(GIVEN)
.bin/golangci-lint: TOOL := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
.bin/benchstat:     TOOL := golang.org/x/perf/cmd/benchstat
.bin/versitygw: go.versitygw.mod go.versitygw.sum
	go build -modfile=go.versitygw.mod -o $@ github.com/versity/versitygw/cmd/versitygw
	@touch $@

# Tools of a release are each built as their own go.mod says: in one file with the linters they do not compile.
.bin/actionlint:      TOOL := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
.bin/cyclonedx-gomod: TOOL := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
.bin/goreleaser:      TOOL := github.com/goreleaser/goreleaser/v2@v2.15.4
.bin/actionlint .bin/cyclonedx-gomod .bin/goreleaser:
	GOBIN="$$PWD/.bin" go install $(TOOL)

.bin/%: go.tools.mod go.tools.sum
	go build -modfile=go.tools.mod -o $@ $(TOOL)
	@touch $@

# A folder is as new as its newest entry, so npm's own mark says when it was filled.
internal/integration/duckdb/node_modules: internal/integration/duckdb/node_modules/.package-lock.json
internal/integration/duckdb/node_modules/.package-lock.json: internal/integration/duckdb/package.json
	npm --prefix internal/integration/duckdb install --no-progress
	@touch $@

internal/integration/readers/node_modules: internal/integration/readers/node_modules/.package-lock.json
internal/integration/readers/node_modules/.package-lock.json: internal/integration/readers/package.json
	npm --prefix internal/integration/readers install --no-progress
	@touch $@

internal/integration/warcio/node_modules: internal/integration/warcio/node_modules/.package-lock.json
internal/integration/warcio/node_modules/.package-lock.json: internal/integration/warcio/package.json
	npm --prefix internal/integration/warcio install --no-progress
	@touch $@

internal/integration/browser/node_modules: internal/integration/browser/node_modules/.package-lock.json
internal/integration/browser/node_modules/.package-lock.json: internal/integration/browser/package.json
	npm --prefix internal/integration/browser install --no-progress
	@touch $@

internal/integration/packages/node_modules: internal/integration/packages/node_modules/.package-lock.json
internal/integration/packages/node_modules/.package-lock.json: internal/integration/packages/package.json
	npm --prefix internal/integration/packages install --no-progress
	@touch $@
