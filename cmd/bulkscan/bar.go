package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/cheggaaa/pb/v3"
	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/internal/terminal"
)

const barInterval = 200 * time.Millisecond

const barTemplate pb.ProgressBarTemplate = `{{counters . }} {{bar . "[" "=" ">" " " "]"}} {{percent . }} {{string . "rate"}} {{rtime . "%s left" "%s" ""}} {{string . "state"}}`

// barSince returns what draws the bar of a run that has begun at a time.
func barSince(begun time.Time) terminal.Bar {
	return func(ctx context.Context, w io.Writer, look func() (done, total int64, state string)) {
		bar := barTemplate.New(0).SetWriter(w).SetRefreshRate(barInterval)
		bar.Start()
		ticker := time.NewTicker(barInterval)
		defer ticker.Stop()
		for alive := true; alive; {
			select {
			case <-ctx.Done():
				alive = false
			case <-ticker.C:
			}
			done, total, state := look()
			bar.SetTotal(total)
			bar.SetCurrent(done)
			bar.Set("rate", fmt.Sprintf("%.0f/s", float64(done)/time.Since(begun).Seconds()))
			bar.Set("state", state)
		}
		bar.Finish()
	}
}

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
