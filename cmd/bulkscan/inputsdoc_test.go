package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// TestInputsPage runs the examples of docs/inputs.md: the files on the page, and the program's output about them.
func TestInputsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/inputs.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	type row struct {
		Domain string `parquet:"domain"`
		Rank   int32  `parquet:"rank"`
		Sector string `parquet:"sector"`
	}
	var table bytes.Buffer // as the SQL statement makes it
	w := parquet.NewGenericWriter[row](&table)
	if _, err := w.Write([]row{{"example.com", 1, "news"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("sites.parquet", table.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	said, commands := "", 0
	for i, block := range strings.Split(string(page), "```") {
		if i%2 == 0 {
			continue
		}
		head, body, _ := strings.Cut(block, "\n")
		kind, file, isFile := strings.Cut(head, " ")
		switch {
		case isFile:
			if err := os.WriteFile(file, []byte(body), 0o644); err != nil {
				t.Fatal(err)
			}
		case kind == "console":
			for line := range strings.Lines(body) {
				line = strings.TrimSuffix(line, "\n")
				command, isCommand := strings.CutPrefix(line, "$ bulkscan ")
				if isCommand {
					var out bytes.Buffer
					run(commandWords(command), strings.NewReader(""), &out, &out)
					said = out.String()
					commands++
				} else if !strings.Contains("\n"+said, "\n"+line+"\n") && !strings.Contains(said, ": "+line+"\n") {
					t.Errorf("it does not say\n%s\nbut\n%s", line, said)
				}
			}
		}
	}
	if commands < 8 {
		t.Errorf("%d commands are on the page", commands)
	}
}

// commandWords cuts a command line at spaces that are not quoted.
func commandWords(line string) []string {
	var all []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}
