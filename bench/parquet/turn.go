package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/bench/facts"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

// This file is the measuring process: it lets one contender write one table, and tells what that used.

// job is what it hears.
type job struct {
	Contender, Table string
	Dir              string // of the dataset that rows are read from
	Rows             int    // to write at least
}

// Measured is what a turn used.
type Measured struct {
	Rows    int64
	CPU     time.Duration
	Wall    time.Duration
	Objects uint64 // allocated
	Bytes   uint64 // allocated
	Peak    int64  // most memory held while the table was open, over what was held before, in bytes; 0 where the system does not tell
	File    int64  // bytes written
}

func (m *Measured) rate() float64 { return float64(m.Rows) / m.CPU.Seconds() }
func (m *Measured) objects() float64 {
	return float64(m.Objects) / float64(m.Rows)
}

// turnPart is the measuring process.
func turnPart(in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("cannot read what to measure: %w", err)
	}
	var m *Measured
	var err error
	switch {
	case j.Contender == statistics:
		m, err = statsTurn(&j)
	case j.Contender == compaction:
		m, err = compactTurn(&j)
	case j.Contender == whole:
		m, err = scanTurn(&j)
	case j.Table == sink.TableSites:
		m, err = turn[sink.SiteRow](&j)
	case j.Table == sink.TableVerdicts:
		m, err = turn[sink.VerdictRow](&j)
	case j.Table == sink.TableEvidence:
		m, err = turn[sink.EvidenceRow](&j)
	default:
		err = fmt.Errorf("there is no table %q", j.Table)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(m)
}

// readRows returns the rows of a table of the dataset, and the path of one of its files.
func readRows[T any](dir, table string) (rows []T, path string, err error) {
	st, err := store.NewDir(dir)
	if err != nil {
		return nil, "", err
	}
	scan, err := sink.ReadScan(context.Background(), st, "replay")
	if err != nil {
		return nil, "", err
	}
	for row, err := range sink.Rows[T](context.Background(), scan, table) {
		if err != nil {
			return nil, "", err
		}
		rows = append(rows, *row)
	}
	f, ok := scan.Commits[0].File(table)
	if !ok {
		return nil, "", sink.ErrNoTable
	}
	share(rows)
	return rows, dir + "/" + f.Name, nil
}

// shared are the columns whose texts a scan's rows do not have each for itself: those of their site are made once, and the
// others are words of tables, or tokens of the registry.
var shared = []string{"origin", "host", "requested", "tld", "token", "category", "verdict", "via", "dpi", "kind"}

// share makes rows that were read lie in memory as a scan's do: texts that are not another's stand one behind the other, in
// the order of rows.
func share[T any](rows []T) {
	var memory []byte
	own := func(text string) string {
		if len(text) > cap(memory)-len(memory) {
			memory = make([]byte, 0, max(1<<20, len(text)))
		}
		at := len(memory)
		memory = append(memory, text...)
		return unsafe.String(unsafe.SliceData(memory[at:]), len(text))
	}
	row, all := reflect.TypeFor[T](), reflect.ValueOf(rows)
	one := make([]map[string]string, row.NumField())
	for k := range rows {
		for i := range row.NumField() {
			text, ok := all.Index(k).Field(i).Addr().Interface().(*string)
			if !ok || *text == "" {
				continue
			}
			column, _, _ := strings.Cut(row.Field(i).Tag.Get("parquet"), ",")
			if !slices.Contains(shared, column) || column == "token" && tokens.Default().Lookup(*text) < 0 {
				*text = own(*text)
				continue
			}
			if one[i] == nil {
				one[i] = map[string]string{}
			}
			first, has := one[i][*text]
			if !has {
				first = own(*text)
				one[i][first] = first
			}
			*text = first
		}
	}
}

// turn writes rows of a table, again and again until they are enough, into one file. A first file does not count.
func turn[T any](j *job) (*Measured, error) {
	rows, path, err := readRows[T](j.Dir, j.Table)
	if err != nil {
		return nil, err
	}
	from, err := readSource[T](path)
	if err != nil {
		return nil, err
	}
	target, remove, err := temporary()
	if err != nil {
		return nil, err
	}
	defer remove()
	file := func(n int) (written int64, err error) {
		w, err := newRowWriter[T](j.Contender, j.Table, target, from)
		if err != nil {
			return 0, err
		}
		for written < int64(n) {
			piece := rows[:min(int64(len(rows)), int64(n)-written)]
			if err := w.write(piece); err != nil {
				return written, err
			}
			written += int64(len(piece))
		}
		return written, w.close()
	}
	if _, err := file(min(len(rows), groupRows)); err != nil {
		return nil, err
	}
	m, err := measure(func() (int64, error) { return file(j.Rows) })
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(target + "/" + j.Table + ".parquet")
	if err != nil {
		return nil, err
	}
	m.File = info.Size()
	return m, nil
}

// scanTurn keeps judged sites, as a scan does: rows are made, and go into parts. What is counted is rows of the one table.
func scanTurn(j *job) (*Measured, error) {
	sites, err := judgedSites()
	if err != nil {
		return nil, err
	}
	target, remove, err := temporary()
	if err != nil {
		return nil, err
	}
	defer remove()
	st, err := store.NewDir(target)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	w, err := sink.Open(ctx, st, sink.Options{ScanID: scanID, Tables: []string{j.Table}})
	if err != nil {
		return nil, err
	}
	seq := uint64(0)
	keep := func(n int) (rows int64, err error) {
		for rows < int64(n) {
			s := numbered(sites, seq)
			seq++
			switch j.Table {
			case sink.TableVerdicts:
				rows += int64(len(s.Report.Verdicts))
			case sink.TableEvidence:
				rows += int64(len(s.Report.Evidence))
			default:
				rows++
			}
			if err := w.Add(s); err != nil {
				return rows, err
			}
		}
		return rows, w.Flush(ctx)
	}
	if _, err := keep(groupRows); err != nil {
		return nil, err
	}
	m, err := measure(func() (int64, error) { return keep(j.Rows) })
	if err != nil {
		return nil, err
	}
	return m, w.Close(ctx)
}

func measure(write func() (int64, error)) (*Measured, error) {
	runtime.GC()
	debug.FreeOSMemory()
	resetPeak()
	held := facts.Memory("self", facts.Resident)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used, began := facts.CPU(), time.Now()
	rows, err := write()
	if err != nil {
		return nil, err
	}
	m := &Measured{Rows: rows, Wall: time.Since(began), CPU: facts.CPU() - used}
	if facts.CPU() == 0 {
		m.CPU = m.Wall // the system does not say
	}
	runtime.ReadMemStats(&after)
	m.Objects, m.Bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	if peak := facts.Memory("self", facts.PeakResident); peak > 0 && held > 0 {
		m.Peak = peak - held
	}
	return m, nil
}

// temporary makes a folder, which remove removes with all that is in it.
func temporary() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "bulkscan-parquet-")
	if err != nil {
		return "", nil, fmt.Errorf("cannot make a folder: %w", err)
	}
	return dir, func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintf(os.Stderr, "parquet: %v\n", err) // it is in nobody's way
		}
	}, nil
}

// resetPeak lets the system count this process's peak of memory anew, where it can (proc_pid_clear_refs(5)).
func resetPeak() {
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // elsewhere the peak is that of the whole process
}
