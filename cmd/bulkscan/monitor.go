package main

import (
	"errors"
	"log/slog"
	"net"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/terminal/metrics"
)

// monitor shows the metrics of a scan, if --metrics-addr or --metrics-file is given.
type monitor struct {
	scan   *metrics.Scan
	server *metrics.Server
	file   *metrics.File
	log    *slog.Logger
}

// monitor begins to show the scan. Wrong flags are an error before any request is made. A dry run has no monitor.
func (f *scanFlags) monitor(listen metrics.Listen, names func() resolve.Stats, log *slog.Logger) (*monitor, error) {
	m := &monitor{scan: metrics.New(toolVersion(), names), log: log}
	if err := f.checkMetrics(); err != nil || f.dryRun {
		return m, err
	}
	if f.metricsAddr != "" {
		server, err := metrics.Serve(listen, f.metricsAddr, m.scan, log)
		if err != nil {
			return nil, usagef("--metrics-addr %s: %w", clipped(f.metricsAddr), err)
		}
		m.server = server
		log.Info("metrics", "url", "http://"+server.Addr()+"/metrics")
	}
	if f.metricsFile != "" {
		m.file = metrics.Keep(f.metricsFile, m.scan, log)
	}
	return m, nil
}

func (f *scanFlags) checkMetrics() error {
	if _, _, err := net.SplitHostPort(f.metricsAddr); f.metricsAddr != "" && err != nil {
		return usagef("--metrics-addr %s: %w", clipped(f.metricsAddr), err)
	}
	if f.metricsFile == "" {
		return nil
	}
	if err := metrics.CheckFile(f.metricsFile); err != nil {
		return usagef("--metrics-file %s: %w", clipped(f.metricsFile), err)
	}
	return nil
}

// end shows how the scan ended, and closes the monitor.
func (m *monitor) end(err error) {
	m.scan.End(stateAfter(err))
	if m.file != nil {
		m.file.Close()
	}
	if m.server != nil {
		if err := m.server.Close(); err != nil {
			m.log.Debug("cannot end the metrics in order", "error", err)
		}
	}
}

// stateAfter returns the state of a scan that ended with this error.
func stateAfter(err error) metrics.State {
	exit := (*exitError)(nil)
	switch {
	case err == nil:
		return metrics.Complete
	case !errors.As(err, &exit):
		return metrics.Failed
	case exit.code == exitThreshold, exit.code == exitDamaged: // the scan itself is done
		return metrics.Complete
	case exit.code == exitInt || exit.code == exitTerm || exit.code == exitAgain:
		return metrics.Interrupted
	}
	return metrics.Failed
}
