package options

import (
	"strings"

	"github.com/spf13/cobra"
)

// The words that a shell offers after TAB: the scripts of `bulkscan completion` get them from the program itself.

// InFolder offers folders as the first argument, and then values.
func InFolder(values func(c *cobra.Command, args []string) []string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		return Offer(values)(c, args, typed)
	}
}

// Offer offers the values that begin with the typed text, or with the last element of a typed list with commas.
func Offer(values func(c *cobra.Command, args []string) []string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		before, last := "", typed
		if comma := strings.LastIndexByte(typed, ','); comma >= 0 {
			before, last = typed[:comma+1], typed[comma+1:]
		}
		var fit []string
		for _, value := range values(c, args) {
			if len(value) >= len(last) && strings.EqualFold(value[:len(last)], last) {
				fit = append(fit, before+value)
			}
		}
		return fit, cobra.ShellCompDirectiveNoFileComp
	}
}
