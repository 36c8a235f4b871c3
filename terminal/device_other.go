//go:build !unix && !windows

package terminal

import "os"

// terminalWidth is how many columns a terminal has; 0: this system does not say.
func terminalWidth(*os.File) int { return 0 }

// takesColor reports whether a terminal obeys control sequences; nothing is known of those of this system.
func takesColor(*os.File) bool { return false }

// takesUTF8 reports whether terminals take text as UTF-8; nothing is known of those of this system.
func takesUTF8() bool { return false }
