// Package queries answers one question: do the queries of docs/queries give the answers that they promise, and how
// fast? It loads the queries, runs them in DuckDB, and makes datasets for them (survey.go). Its tests compare every
// answer with a golden file, the views with statistics, and the definitions with audit's vectors; BenchmarkQueries in
// bench measures the queries on a million sites.
package queries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Query is a file of docs/queries. It begins with a comment of four lines: the question, "Definition:", "Over:" and
// "Caveat:".
type Query struct {
	Name       string // of the file, without .sql
	Question   string
	Definition string
	Over       string // see Clauses
	Caveat     string
	SQL        string // the whole file
}

// Load reads the queries of a folder, ordered by name.
func Load(dir string) ([]Query, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.sql"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("cannot find a query in %s", dir)
	}
	var all []Query
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read a query: %w", err)
		}
		q := Query{Name: strings.TrimSuffix(filepath.Base(path), ".sql"), SQL: string(text)}
		if err := q.parse(); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", path, err)
		}
		all = append(all, q)
	}
	return all, nil
}

// parse reads the comment.
func (q *Query) parse() error {
	parts := []struct {
		prefix string
		into   *string
	}{{"", &q.Question}, {"Definition: ", &q.Definition}, {"Over: ", &q.Over}, {"Caveat: ", &q.Caveat}}
	lines := strings.Split(q.SQL, "\n")
	for i, part := range parts {
		text, ok := "", false
		if i < len(lines) {
			text, ok = strings.CutPrefix(lines[i], "-- "+part.prefix)
		}
		if !ok || text == "" {
			return fmt.Errorf("line %d does not begin with %q", i+1, "-- "+part.prefix)
		}
		*part.into = text
	}
	if len(lines) < 6 || !strings.HasPrefix(lines[4], "SELECT ") || !strings.HasSuffix(q.SQL, ";\n") {
		return errors.New("what follows the comment is no SELECT that ends with a semicolon")
	}
	return nil
}

// Answer is the result of a query.
type Answer struct {
	Name    string
	Columns []string
	Types   []string
	Rows    [][]any   // as in JSON: nil, bool, string, json.Number; a BIGINT is a string
	Millis  []float64 `json:"ms"`
	CPU     []float64 `json:"cpu"` // milliseconds of all processors
	Error   string
}

// Ready returns an error that says what Ask needs and is missing.
func Ready(tools string) error {
	if _, err := exec.LookPath("node"); err != nil {
		return fmt.Errorf("cannot ask DuckDB: %w", err)
	}
	if _, err := os.Stat(filepath.Join(tools, "node_modules")); err != nil {
		return fmt.Errorf("cannot ask DuckDB: %w; make internal/integration/duckdb/node_modules installs it", err)
	}
	return nil
}

// process is the DuckDB that answers all requests of this program: starting one takes longer than most answers. It ends
// when its input does, which is at the end of the program.
var process struct {
	sync.Mutex

	cmd *exec.Cmd // nil: it is not started
	in  *json.Encoder
	out *json.Decoder
}

func start(ctx context.Context, tools string) error {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "node", filepath.Join(tools, "ask.mjs"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	process.cmd, process.in, process.out = cmd, json.NewEncoder(in), json.NewDecoder(out)
	process.out.UseNumber()
	return nil
}

// Ask runs each query in DuckDB on a dataset, the given number of times with the given number of threads. Each call has
// a database of its own. tools is the folder with DuckDB (internal/integration/duckdb). An Answer has the error of its
// query.
func Ask(ctx context.Context, tools, dataset string, all []Query, threads, runs int) ([]Answer, error) {
	type statement struct {
		Name string `json:"name"`
		SQL  string `json:"sql"`
	}
	request := struct {
		Folder  string      `json:"folder"` // relative paths start there
		Dataset string      `json:"dataset"`
		Threads int         `json:"threads"`
		Runs    int         `json:"runs"`
		Queries []statement `json:"queries"`
	}{Dataset: dataset, Threads: threads, Runs: runs}
	for _, q := range all {
		request.Queries = append(request.Queries, statement{q.Name, q.SQL})
	}
	var err error
	if request.Folder, err = os.Getwd(); err != nil {
		return nil, err
	}
	process.Lock()
	defer process.Unlock()
	if process.cmd == nil {
		if err := start(ctx, tools); err != nil {
			return nil, fmt.Errorf("cannot start DuckDB: %w", err)
		}
	}
	defer context.AfterFunc(ctx, func() { _ = process.cmd.Process.Kill() })()
	var reply struct {
		Error   string
		Answers []Answer
	}
	if err := errors.Join(process.in.Encode(request), process.out.Decode(&reply)); err != nil {
		return nil, fmt.Errorf("cannot ask DuckDB: %w", err)
	}
	if reply.Error != "" {
		return nil, fmt.Errorf("cannot read %s: %s", filepath.Join(dataset, "views.sql"), reply.Error)
	}
	if len(reply.Answers) != len(all) {
		return nil, fmt.Errorf("DuckDB answers %d queries of %d", len(reply.Answers), len(all))
	}
	return reply.Answers, nil
}
