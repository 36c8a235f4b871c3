package main

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/terminal"
)

// addColor adds --color.
func addColor(flags *pflag.FlagSet, color *terminal.Color) {
	*color = terminal.ColorAuto
	flags.Var(color, "color", "colours: auto (on a terminal, unless NO_COLOR is set or TERM is dumb), always, or never")
}

// newLogger makes the log that --log-format and --log-level ask for.
func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	log, err := terminal.NewLogger(w, format, level)
	return log, usage(err)
}
