package options

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/internal/printable"
)

// Errors of the command line in the user's terms: what was probably meant, and what to write.

// DidYouMean returns the question whether the user meant one of the known names near given, or "" if none is near. Each
// name stands between before and after.
func DidYouMean(before, given string, known []string, after string) string {
	var near []string
	best := 1 + len(given)/5 // names with more slips are not near
	for _, name := range known {
		slips := slipsBetween(strings.ToLower(given), strings.ToLower(name))
		if len(given) > 2 && strings.HasPrefix(strings.ToLower(name), strings.ToLower(given)) {
			slips = min(slips, best)
		}
		if slips < best {
			best, near = slips, nil
		}
		if slips == best {
			near = append(near, before+name+after)
		}
	}
	if len(near) == 0 || len(near) > 3 {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
}

// slipsBetween counts the letters that were left out, added, replaced, or swapped with their neighbour.
func slipsBetween(a, b string) int {
	if len(a) > 64 || len(b) > 64 { // no name is so long
		return 64
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
		for j := range rows[i] {
			switch {
			case i == 0:
				rows[i][j] = j
			case j > 0:
				same := rows[i-1][j-1]
				if a[i-1] != b[j-1] {
					same++
				}
				rows[i][j] = min(same, rows[i-1][j]+1, rows[i][j-1]+1)
				if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
					rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
				}
			}
		}
	}
	return rows[len(a)][len(b)]
}

// OneOf is the error of an unknown value.
func OneOf(what, given string, known []string) error {
	return fmt.Errorf("%s %q: one of %s%s", what, printable.Short(given), strings.Join(known, ", "),
		DidYouMean("", given, known, ""))
}

// CheckChoices refuses a value that is not among the choices of its flag.
func (r *Rules) CheckChoices(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			if known := r.Choices[f.Name]; known != nil && !slices.Contains(known, value) {
				errs = append(errs, WithSource(flags, OneOf("--"+f.Name, value, known)))
			}
		}
	})
	return errors.Join(errs...)
}

// Mistake says what is wrong with a flag of the command line in the user's terms, and what to write instead.
func Mistake(flags *pflag.FlagSet, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return explained(err)
	}
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return fmt.Errorf("%w%s", err, DidYouMean("--", unknown.GetSpecifiedName(), names, ""))
}

// explained is Mistake for the value of a flag.
func explained(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	given := invalid.GetValue()
	remedy := invalid.Unwrap().Error()
	switch invalid.GetFlag().Value.Type() {
	case "bool":
		remedy = "true or false"
	case "int":
		remedy = "a whole number"
	case "uint64":
		remedy = "a whole number from 0 on"
	case "float64":
		remedy = "a number, as in 2 or 0.5"
	case "duration":
		remedy = "a duration, as in 5s, 10m or 1h30m"
		if _, err := strconv.ParseFloat(given, 64); err == nil {
			remedy = fmt.Sprintf("a duration needs a unit; try %ss", given)
		}
	}
	if errors.Is(err, strconv.ErrRange) {
		remedy += " of at most 64 bits"
	}
	return fmt.Errorf("--%s %q: %s", invalid.GetFlag().Name, printable.Short(given), remedy)
}

var flagInText = regexp.MustCompile(`--[a-z][a-z0-9-]*|-o\b`)

// WithSource adds the source of a flag's value to an error of usage that names the flag, if the source is a variable or
// a configuration file.
func WithSource(flags *pflag.FlagSet, err error) error {
	for _, name := range flagInText.FindAllString(err.Error(), -1) {
		f := flags.Lookup(strings.TrimPrefix(name, "--"))
		if name == "-o" {
			f = flags.ShorthandLookup("o")
		}
		if f == nil {
			continue
		}
		if source := sourceOf(f); source != "" && !strings.Contains(err.Error(), source) {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	return err
}
