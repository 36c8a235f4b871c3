package main

import (
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkscan/bulkscan/cmd/bulkscan/options"
)

func (a *app) manCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "man [COMMAND]",
		Short: "Print a manual page, or write all of them",
		Long: `man prints the manual page of a command, or of bulkscan. -o writes all pages to a folder: bulkscan.1 and one a command.

The pages have today's date, or that of SOURCE_DATE_EPOCH (seconds since 1970).`,
		Example: `  bulkscan man scan | man -l -
  bulkscan man -o /usr/local/share/man/man1`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			date, err := manDate()
			if err != nil {
				return err
			}
			manual := options.Manual{Version: "bulkscan " + toolVersion(), Date: date, ExitCodes: exitCodes,
				Variables: variables, Home: home}
			switch {
			case dir != "" && len(args) > 0:
				return usagef("-o writes all pages; leave %s out", args[0])
			case dir != "":
				return manual.WriteAll(dir, c.Root())
			}
			subject, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 || !options.HasPage(subject) {
				return usagef("there is no command %q", args[0])
			}
			_, err = io.WriteString(a.stdout, manual.Page(subject))
			return err
		},
	}
	c.Flags().StringVarP(&dir, "write", "o", "", "folder that gets all pages")
	return c
}

// manDate is the date of the pages. A release sets SOURCE_DATE_EPOCH, so that building it again gives the same bytes.
func manDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Now().UTC(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, usagef("SOURCE_DATE_EPOCH %q: not a number of seconds", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
