package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/internal/store/s3"
)

// Where a dataset lies: a folder, or s3://BUCKET/PREFIX. Whatever takes a dataset as its argument opens it here.

// checkPlace refuses, as an error of usage, what names no place for a dataset. It asks nobody.
func checkPlace(place string) error {
	_, err := openPlace(place)
	return err
}

// openPlace returns the store that a dataset is written to. It asks nobody yet: whether the place exists, and whether one
// may write there, is seen at the first call.
func openPlace(place string) (store.Store, error) {
	switch scheme, _, ok := strings.Cut(place, "://"); {
	case place == "":
		return nil, usagef("no place for the dataset: name a folder, or s3://BUCKET/PREFIX")
	case !ok && strings.HasPrefix(strings.ToLower(place), "s3:"):
		return nil, usagef("%s: write s3://BUCKET/PREFIX; a folder of that name is ./%[1]s", clipped(place))
	case !ok:
		dir, err := store.NewDir(place)
		if err != nil {
			return nil, err // not into the interface: a nil *Dir would be no nil Store
		}
		return dir, nil
	case scheme != "s3":
		// What stands behind may be a user's password.
		return nil, usagef("%s://: datasets are kept in a folder or at s3://BUCKET/PREFIX", clipped(scheme))
	}
	cfg, err := s3.FromEnvironment(place)
	if err != nil {
		return nil, usage(err)
	}
	remote, err := s3.New(cfg)
	if err != nil {
		return nil, usage(err)
	}
	return remote, nil
}

// openDataset returns the store of a dataset that is there to be read.
func openDataset(place string) (store.Store, error) {
	st, err := openPlace(place)
	if err == nil && !strings.Contains(place, "://") {
		info, err := os.Stat(place)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("cannot read the dataset: %w", err)
		case !info.IsDir():
			return nil, usagef("%s is no folder; name the folder that a scan wrote, or s3://BUCKET/PREFIX", place)
		}
	}
	return st, err
}
