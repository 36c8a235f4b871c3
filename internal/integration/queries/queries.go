// Package queries answers one question: do the queries of docs/queries answer what they say, and how fast? It loads the
// queries, runs them in DuckDB, and makes datasets for them (survey.go). Its tests compare every answer with a golden
// file, the views with statistics, and the definitions with audit's vectors; BenchmarkQueries in bench measures the
// queries on a million sites.
package queries

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// Ask runs each query in DuckDB on a dataset, the given number of times with the given number of threads. tools is the
// folder with DuckDB (internal/integration/duckdb). An Answer has the error of its query.
func Ask(ctx context.Context, tools, dataset string, all []Query, threads, runs int) ([]Answer, error) {
	type statement struct {
		Name string `json:"name"`
		SQL  string `json:"sql"`
	}
	request := struct {
		Threads int         `json:"threads"`
		Runs    int         `json:"runs"`
		Queries []statement `json:"queries"`
	}{Threads: threads, Runs: runs}
	for _, q := range all {
		request.Queries = append(request.Queries, statement{q.Name, q.SQL})
	}
	input, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "node", filepath.Join(tools, "ask.mjs"), dataset)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("cannot ask DuckDB: %w\n%s", err, stderr.Bytes())
	}
	var answers []Answer
	lines := json.NewDecoder(&stdout)
	lines.UseNumber()
	for {
		var a Answer
		if err := lines.Decode(&a); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("cannot read what DuckDB answers: %w", err)
		}
		answers = append(answers, a)
	}
	if len(answers) != len(all) {
		return nil, fmt.Errorf("DuckDB answers %d queries of %d", len(answers), len(all))
	}
	return answers, nil
}
