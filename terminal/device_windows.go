package terminal

import (
	"os"

	"golang.org/x/sys/windows"
)

// terminalWidth is how many columns a console has; 0: it does not say.
func terminalWidth(file *os.File) int {
	var info windows.ConsoleScreenBufferInfo
	if err := windows.GetConsoleScreenBufferInfo(windows.Handle(file.Fd()), &info); err != nil {
		return 0
	}
	return int(info.Window.Right-info.Window.Left) + 1
}

// takesColor makes a console obey control sequences, and reports whether it does. Older ones never do.
func takesColor(file *os.File) bool {
	var mode uint32
	console := windows.Handle(file.Fd())
	if err := windows.GetConsoleMode(console, &mode); err != nil {
		return false
	}
	return windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}

// takesUTF8 reports whether consoles show UTF-8. They do, since Go passes text to a console as characters.
func takesUTF8() bool { return true }
