package table

import (
	"context"
	"errors"
	"fmt"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// CompareHash compares a file's bytes with its record. The error names the file; it is a *schema.DamagedError if they
// differ.
func CompareHash(ctx context.Context, st store.Store, file schema.File) error {
	fail := func(err error) error { return fmt.Errorf("cannot read %s: %w", file.Name, err) }
	object, err := st.Open(ctx, file.Name)
	if err != nil {
		return err
	}
	defer object.Close()
	if object.Size() != file.Bytes {
		return fail(&schema.DamagedError{What: "bytes", Expected: fmt.Sprint(file.Bytes), Found: fmt.Sprint(object.Size())})
	}
	found, err := store.SumOf(object)
	if err == nil && found != file.SHA256 {
		err = &schema.DamagedError{What: "sha256", Expected: file.SHA256, Found: found}
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// IsSound reports whether a file is as its record says. An error may be temporary.
func IsSound(ctx context.Context, st store.Store, file schema.File) (bool, error) {
	err := CompareHash(ctx, st, file)
	if _, damaged := errors.AsType[*schema.DamagedError](err); damaged || errors.Is(err, store.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
