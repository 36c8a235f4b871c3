package schema

import "fmt"

// NewerError says that a manifest, a commit or a table has a later schema version than Version. Its values may have
// other meanings, so bulkscan computes nothing from it and adds nothing to it.
type NewerError struct{ Version int }

func (e *NewerError) Error() string {
	return fmt.Sprintf("it is of schema version %d, and this bulkscan knows versions up to %d: use a newer bulkscan", e.Version, Version)
}

// CheckVersion returns a *NewerError for a later schema version.
func CheckVersion(version int) error {
	if version > Version {
		return &NewerError{version}
	}
	return nil
}
