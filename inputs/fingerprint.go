package inputs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// Fingerprint identifies lists by their contents and order, whatever the names of the files.
type Fingerprint [sha256.Size]byte

// String returns 64 hexadecimal digits.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// FingerprintOf returns the SHA-256 of the files' SHA-256 sums. Compressed files are hashed as they are. Standard
// input cannot be read twice: copy it with Spool and name the file.
func FingerprintOf(ctx context.Context, paths []string) (all Fingerprint, err error) {
	together := sha256.New()
	for _, path := range paths {
		if path == "-" {
			return all, errors.New("cannot fingerprint standard input: it can be read only once")
		}
		sum, err := sumFile(ctx, path)
		if err != nil {
			return all, err
		}
		together.Write(sum[:])
	}
	return Fingerprint(together.Sum(nil)), nil
}

func sumFile(ctx context.Context, path string) (sum fileSum, err error) {
	if again, _, err := rereadable(path); err != nil {
		return sum, err
	} else if !again {
		return sum, &Error{File: path, Err: errors.New("it is a pipe or a device, which can be read only once"),
			Remedy: "save it as a file first"}
	}
	file, err := os.Open(path)
	if err != nil {
		return sum, &Error{File: path, Err: plainPathError(err)}
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, &watched{ctx: ctx, r: file, n: new(atomic.Int64)}); err != nil {
		return sum, &Error{File: path, Err: plainPathError(err)}
	}
	return fileSum(hash.Sum(nil)), nil
}

// Spool copies r, which can be read only once, to a new file in dir. The caller removes the file; after an error there
// is none. Spool returns when ctx ends, even if a read blocks; that read continues in the background until r returns.
func Spool(ctx context.Context, r io.Reader, dir string) (path string, err error) {
	file, err := os.CreateTemp(dir, "bulkscan-stdin-*")
	if err != nil {
		return "", fmt.Errorf("cannot keep a copy of standard input: %w", err)
	}
	_, err = io.Copy(file, abandonable(ctx, r))
	if err = errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(file.Name())
		return "", fmt.Errorf("cannot keep a copy of standard input: %w", err)
	}
	return file.Name(), nil
}
