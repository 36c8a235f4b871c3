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

// Interval is how often a File is written. Prometheus usually scrapes a node_exporter as often.
const Interval = 15 * time.Second

// File writes a scan's metrics to a file for the textfile collector of a node_exporter. The collector never sees a
// part of a file: each is written under another name in the same folder, and renamed.
type File struct {
	path     string
	gatherer prometheus.Gatherer
	log      *slog.Logger
	failing  bool

	stop, ended chan struct{}
}

// CheckFile returns an error for a path that must not be replaced: standard output, a folder or a device. It does not
// check whether the path can be written.
func CheckFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case path == "-":
		return errors.New("not standard output: the file is replaced every 15 s")
	case err == nil && info.IsDir():
		return errors.New("it is a folder; a node_exporter reads the files in it that end in .prom")
	case err == nil && !info.Mode().IsRegular():
		return errors.New("it is no regular file, and would be replaced by one")
	}
	return nil
}

// Keep writes the file now, every Interval, and at Close. A failed write does not stop the scan: the first failure is
// logged, and so is the next success.
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

// Close writes the file for the last time and stops.
func (f *File) Close() {
	close(f.stop)
	<-f.ended
}

func (f *File) write() {
	err := prometheus.WriteToTextfile(f.path, f.gatherer)
	switch {
	case err != nil && !f.failing:
		// The error contains a temporary name, which differs each time and means nothing to users.
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
