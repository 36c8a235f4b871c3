package schema

import (
	"errors"
	"fmt"
)

// NewerError says that a record or a table has a later schema version than Version. Its values may have other meanings,
// so bulkscan computes nothing from it and adds nothing to it.
type NewerError struct{ Version int }

func (e *NewerError) Error() string {
	return fmt.Sprintf("it is of schema version %d, and this bulkscan knows versions up to %d: use a newer bulkscan",
		e.Version, Version)
}

// OlderError says that a scan has an earlier schema version than Version. It lacks columns and meanings that bulkscan
// takes for granted. Only reaudit and verify read such a scan.
type OlderError struct{ Version int }

func (e *OlderError) Error() string {
	return fmt.Sprintf(
		"it is of schema version %d, and this bulkscan is for version %d: bulkscan reaudit OUT -o NEW makes a dataset of that version of it", e.Version, Version)
}

// OfOtherVersion reports whether an error is a *NewerError or an *OlderError.
func OfOtherVersion(err error) bool {
	_, newer := errors.AsType[*NewerError](err)
	_, older := errors.AsType[*OlderError](err)
	return newer || older
}

// CheckVersion returns a *NewerError for a later schema version.
func CheckVersion(version int) error {
	if version > Version {
		return &NewerError{version}
	}
	return nil
}
