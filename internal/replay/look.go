package replay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/bulkscan/bulkscan/internal/warc"
)

// lookAt returns the size of a file and an error if it cannot be an archive.
func lookAt(path string) (size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return 0, err
	case info.IsDir():
		return 0, errors.New("it is a folder: name the archives in it")
	case !info.Mode().IsRegular():
		return 0, errors.New("it is a pipe or a device, in which nothing can be looked up: save it as a file first")
	}
	head := make([]byte, 6)
	n, err := file.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	if n >= 4 && head[0]&0xf0 == 0x50 { // zstd archives begin with a skippable frame, which holds their dictionary (RFC 8878 §3.1.2)
		head[0] = 0x50
	}
	for magic, name := range map[string]string{"\x28\xb5\x2f\xfd": "zstd", "\x50\x2a\x4d\x18": "zstd with a dictionary", "\xfd7zXZ\x00": "xz", "BZh": "bzip2", "PK\x03\x04": "zip"} {
		if strings.HasPrefix(string(head[:n]), magic) {
			return 0, fmt.Errorf("it is compressed by %s, and archives are read plain or by gzip: unpack it first", name)
		}
	}
	return info.Size(), warc.Look(file, info.Size())
}
