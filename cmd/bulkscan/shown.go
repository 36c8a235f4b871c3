package main

import (
	"io"

	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/terminal"
)

// shownAs is how a command shows its answer: as JSON, or as a page with colours or without.
type shownAs struct {
	json  bool
	color terminal.Color
}

// add adds --json, with what it prints, and --color.
func (s *shownAs) add(flags *pflag.FlagSet, json string) {
	flags.BoolVar(&s.json, "json", false, json)
	addColor(flags, &s.color)
}

// show writes an answer.
func show[T any](a *app, how shownAs, answer T, page func(io.Writer, T, terminal.Color) error) error {
	if how.json {
		return terminal.WriteJSON(a.stdout, answer)
	}
	return page(a.stdout, answer, how.color)
}

// addColor adds --color.
func addColor(flags *pflag.FlagSet, color *terminal.Color) {
	*color = terminal.ColorAuto
	flags.Var(color, "color", "colours: auto (on a terminal, unless NO_COLOR is set or TERM is dumb), always, or never")
}
