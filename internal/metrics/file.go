package metrics

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Interval is how often a File is written. A node_exporter is usually asked as often.
const Interval = 15 * time.Second

// File keeps a scan's metrics in a file for the textfile collector of a node_exporter, which sees one reading or the next,
// never a part of one: each is written under another name in the same folder, and renamed.
type File struct {
	path     string
	gatherer prometheus.Gatherer
	log      *slog.Logger
	failing  bool

	stop, ended chan struct{}
}

// CheckFile returns an error for a path that a file must not be renamed to: what is there already is a folder, or a device.
// Whether anything can be written there is no matter of this check.
func CheckFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case path == "-":
		return errors.New("not standard output; a file that is replaced every now and then")
	case err == nil && info.IsDir():
		return errors.New("it is a folder; a node_exporter reads the files in it that end in .prom")
	case err == nil && !info.Mode().IsRegular():
		return errors.New("it is no regular file, and would be replaced by one")
	}
	return nil
}

// Keep writes the file now, every Interval, and by Close. A file that cannot be written is no failure of the scan: log is told
// when that begins, and when it has ended.
func Keep(path string, scan *Scan, log *slog.Logger) *File {
	f := &File{path: path, gatherer: scan.alone(), log: log, stop: make(chan struct{}), ended: make(chan struct{})}
	f.write()
	go f.keep()
	return f
}

func (f *File) keep() {
	defer close(f.ended)
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.write()
		case <-f.stop:
			f.write()
			return
		}
	}
}

// Close writes the file for the last time.
func (f *File) Close() {
	close(f.stop)
	<-f.ended
}

func (f *File) write() {
	err := prometheus.WriteToTextfile(f.path, f.gatherer)
	switch {
	case err != nil && !f.failing:
		// The temporary name in the error would be another one each time, and mean nothing to anybody.
		if path := (*fs.PathError)(nil); errors.As(err, &path) {
			err = path.Err
		} else if link := (*os.LinkError)(nil); errors.As(err, &link) {
			err = link.Err
		}
		f.log.Warn("cannot write the metrics; the scan goes on", "file", f.path, "folder", filepath.Dir(f.path), "error", err)
	case err == nil && f.failing:
		f.log.Info("the metrics are written again", "file", f.path)
	}
	f.failing = err != nil
}
