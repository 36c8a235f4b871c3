package main

import (
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/terminal"
)

// addColor adds --color.
func addColor(flags *pflag.FlagSet, color *terminal.Color) {
	*color = terminal.ColorAuto
	flags.Var(color, "color", "colours: auto (on a terminal, unless NO_COLOR is set or TERM is dumb), always, or never")
}
