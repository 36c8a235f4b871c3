//go:build unix

package terminal

import (
	"cmp"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// terminalWidth is how many columns a terminal has; 0: it does not say.
func terminalWidth(file *os.File) int {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// takesColor reports whether a terminal obeys control sequences; all do here.
func takesColor(*os.File) bool { return true }

// takesUTF8 reports whether terminals take text as UTF-8: by the first of the locale's variables that is set.
func takesUTF8() bool {
	locale := strings.ToLower(cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG")))
	return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}
