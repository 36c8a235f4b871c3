package main

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"
	"sync"

	ftpd "goftp.io/server/v2"
)

// ftpSite is the content of an FTP server: one file, at the root.
type ftpSite struct {
	ftpd.Driver        // panics on any other request
	file        string // "": there is none
	private     bool   // not for anonymous
}

// CheckPasswd implements ftpd.Auth.
func (s *ftpSite) CheckPasswd(_ *ftpd.Context, user, _ string) (bool, error) {
	return user == "anonymous" && !s.private, nil
}

// GetFile implements ftpd.Driver.
func (s *ftpSite) GetFile(_ *ftpd.Context, path string, _ int64) (int64, io.ReadCloser, error) {
	if path != "/robots.txt" || s.file == "" {
		return 0, nil, fs.ErrNotExist
	}
	return int64(len(s.file)), io.NopCloser(strings.NewReader(s.file)), nil
}

// startFTP runs an FTP server on loopback and returns its URL, and what ends it.
func startFTP(site *ftpSite) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server, err := ftpd.NewServer(&ftpd.Options{Driver: site, Auth: site, Perm: ftpd.NewSimplePerm("nobody", "nobody"),
		Logger: new(ftpd.DiscardLogger)})
	if err != nil {
		return "", nil, errors.Join(err, listener.Close())
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // until its listener is closed
	return "ftp://" + listener.Addr().String(), func() {
		_ = listener.Close()
		serving.Wait()
	}, nil
}
