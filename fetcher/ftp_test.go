package fetcher

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	ftpd "goftp.io/server/v2"

	"github.com/bulkscan/bulkscan/internal/memnet"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// playFTP plays an FTP server at a connection of a web. replies replace its usual replies by command: "" is the
// greeting, "226" the reply after a transfer. A reply to PASV with two verbs gets the port of the data connection. send
// sends the file. instead, if not nil, is called before each reply; if it returns true, it has replied itself.
func playFTP(conn net.Conn, replies map[string]string, send func(net.Conn), instead func(command string) bool) {
	var data net.Listener
	open := func() int {
		data, _ = hostOf(conn).Listen(0)
		return data.Addr().(*net.TCPAddr).Port
	}
	defer func() {
		if data != nil {
			_ = data.Close()
		}
	}()
	say := func(command, usual string) bool {
		if instead != nil && instead(command) {
			return true
		}
		if text, ok := replies[command]; ok {
			usual = text
		}
		_, err := io.WriteString(conn, usual+"\r\n")
		return err == nil
	}
	ok := say("", "220 ready")
	for lines := bufio.NewScanner(conn); ok && lines.Scan(); {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		usual := "221 bye"
		switch command {
		case "USER":
			usual = "331 password"
		case "PASS":
			usual = "230 welcome"
		case "FEAT":
			usual = "500 what?"
		case "TYPE":
			usual = "200 fine"
		case "EPSV":
			if _, given := replies[command]; !given {
				usual = fmt.Sprintf("229 Entering (|||%d|)", open())
			}
		case "PASV":
			usual = "502 no"
			if given := replies[command]; strings.Count(given, "%d") == 2 {
				port := open()
				_, _ = fmt.Fprintf(conn, given+"\r\n", port>>8, port&0xff)
				continue
			}
		case "RETR":
			if usual = "150 here it comes"; argument != "robots.txt" {
				usual = "550 no"
			}
		}
		ok = say(command, usual)
		if _, refused := replies[command]; command == "RETR" && !refused {
			if transfer, err := data.Accept(); err == nil {
				send(transfer)
				_ = transfer.Close()
			}
			ok = ok && say("226", "226 done")
		}
	}
}

// hostOf returns the host that serves a connection of a web.
func hostOf(conn net.Conn) memnet.Host {
	if l, ok := conn.(*limited); ok {
		conn = l.Conn
	}
	return conn.(*visit).host
}

// sends returns a function that sends a file.
func sends(file string) func(net.Conn) {
	return func(conn net.Conn) { _, _ = io.WriteString(conn, file) }
}

// ftpServer returns a handler of playFTP that sends a file.
func ftpServer(file string, replies map[string]string) func(net.Conn) {
	return func(conn net.Conn) { playFTP(conn, replies, sends(file), nil) }
}

// ftpData returns a handler of playFTP with usual replies.
func ftpData(send func(control, data net.Conn)) func(net.Conn) {
	return func(control net.Conn) {
		playFTP(control, nil, func(data net.Conn) { send(control, data) }, nil)
	}
}

func TestFTP(t *testing.T) {
	f := func(name string, handle func(net.Conn), want row) {
		t.Helper()
		bubble(t, name, func(t *testing.T) {
			t.Helper()
			cfg := site(t, 0, handle)
			cfg.MaxBody = 1000
			r, asked := fetch(t, newFetcher(t, cfg), "ftp://example.com")
			after := time.Duration(0)
			if want.outcome == exchange.Timeout {
				after = 15 * time.Second
			}
			if got := rowOf(r); got != want || r.Timing.Total != after || len(asked) != 1 ||
				asked[0] != "ftp://example.com/robots.txt" {
				t.Errorf("got %v (%v) after %v and %v", got, r.Cause, asked, r.Timing.Total)
			}
		})
	}
	const file = "User-agent: *\nDisallow: /\n"
	says := func(command, reply string) func(net.Conn) { return ftpServer(file, map[string]string{command: reply}) }
	f("file", ftpServer(file, nil), answers(200, file))
	f("over the bound", ftpServer(strings.Repeat("Disallow: /x\n", 100), nil),
		answers(200, strings.Repeat("Disallow: /x\n", 76)))
	f("empty", ftpServer("", nil), answers(200, ""))
	f("no file", says("RETR", "550 no such file"), answers(404, ""))
	f("no file, though announced", ftpServer("", map[string]string{"226": "550 no such file"}), answers(404, ""))
	f("no file, in several lines", says("RETR", "550-no\r\n 200 such\r\n550 file"), answers(404, ""))
	f("no file by another code", says("RETR", "551 no such file"), answers(500, ""))
	f("forbidden file name", says("RETR", "553 no"), answers(500, ""))
	f("busy", says("RETR", "450 try later"), answers(503, ""))
	f("no data connection", says("RETR", "425 no"), answers(503, ""))
	f("550 for the password", says("PASS", "550 checking failed"), answers(500, ""))
	f("550 for the type", says("TYPE", "550 no"), answers(500, ""))
	f("not for anonymous", says("PASS", "530 no"), answers(500, ""))
	f("not for anonymous at once", says("USER", "530 no"), answers(500, ""))
	f("not without an account", says("USER", "332 which?"), answers(500, ""))
	f("anonymous without a password", says("USER", "230 welcome"), answers(200, file))
	f("too many users", says("", "421 later"), answers(503, ""))
	f("too many users, at the user name", says("USER", "421 later"), answers(503, ""))
	f("too many users, at the password", says("PASS", "421-later\r\n421 please"), answers(503, ""))
	f("ready later", says("", "120 in an hour"), answers(500, ""))
	f("a long welcome", says("PASS", "230-hello\r\n"+strings.Repeat("230-and again\r\n", 1000)+"230 welcome"),
		answers(200, file))
	f("a welcome with other codes in it", says("PASS", "230-hello\r\n550 is no word\r\n421 neither\r\n230 welcome"),
		answers(200, file))
	f("ended by another code", says("226", "250 done"), answers(200, file))
	f("aborted in the middle", says("226", "426 sorry"), row{exchange.ClosedEarly, exchange.CauseClosedInBody, 0, ""})
	f("no file any more in the middle", says("226", "550 gone"), row{exchange.ClosedEarly, exchange.CauseClosedInBody, 0,
		""})
	f("passive mode refused", says("EPSV", "500 no"), answers(500, ""))
	f("passive mode by PASV", ftpServer(file, map[string]string{"EPSV": "500 no",
		"PASV": "227 Entering (127,0,0,1,%d,%d)."}), answers(200, file))
	f("passive mode, hostile EPSV",
		ftpServer(file, map[string]string{"EPSV": "229 (|||)", "PASV": "227 Entering (127,0,0,1,%d,%d)."}),
		answers(200, file))
	// For any address in a reply, the data connection goes to the address of the control connection.
	for _, elsewhere := range []string{"10,0,0,1", "169,254,169,254", "127,0,0,2", "8,8,8,8", "0,0,0,0", "a,b,c,d",
		"999,1,1,1"} {
		f("passive mode at "+elsewhere, ftpServer(file, map[string]string{"EPSV": "500 no", "PASV": "227 (" + elsewhere +
			",%d,%d)"}), answers(200, file))
	}
	other := row{exchange.BadResponse, exchange.CauseOther, 0, ""}
	for _, hostile := range []string{"227 )(", "227 ", "227 (", "227 ()", "227 (1,2,3,4,5)", "227 (10,0,0,1,0,0)",
		"227 (127,0,0,1,999,999)", "227 (127,0,0,1,-1,9)", "227 (127,0,0,1,x,y)", "227 (,,,,,)"} {
		f("hostile passive mode "+hostile, ftpServer(file, map[string]string{"EPSV": "500 no", "PASV": hostile}), other)
	}
	for _, port := range []string{"0", "65536", "99999999999999999999", "-1", "x", ""} {
		f("passive mode at port "+port, ftpServer(file, map[string]string{"EPSV": "229 (|||" + port + "|)",
			"PASV": "227 )("}), other)
	}
	f("data connection refused", says("EPSV", "229 (|||1|)"), row{exchange.Reset, exchange.CauseResetHead, 0, ""})
	f("reset in the file", ftpData(func(_, data net.Conn) {
		_, _ = io.WriteString(data, file)
		_ = data.(stream).SetLinger(0)
	}), row{exchange.Reset, exchange.CauseResetBody, 0, ""})
	f("an endless file", ftpData(func(_, data net.Conn) {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(data, "Disallow: /x\n")
		}
	}), answers(200, strings.Repeat("Disallow: /x\n", 76)))
	f("control connection cut in the file", ftpData(func(control, data net.Conn) {
		_ = control.(stream).CloseWrite()
		_, _ = io.WriteString(data, file)
	}), row{exchange.ClosedEarly, exchange.CauseClosedInBody, 0, ""})
	for _, command := range []string{"", "USER", "PASS", "FEAT", "TYPE", "EPSV", "RETR", "226"} {
		endless := row{exchange.HeaderTooLarge, exchange.CauseHeadTooLarge, 0, ""}
		f("endless lines after "+command, says(command, "200-"+strings.Repeat("x\r\n200-x", 100_000)), endless)
		f("an endless line after "+command, says(command, "200-"+strings.Repeat("x", 1_000_000)), endless)
		switch command {
		case "226": // without it a file is not complete
			f("no number after "+command, says(command, "what?"), row{exchange.BadResponse, exchange.CauseOther, 0, ""})
		case "EPSV": // PASV follows
			f("no number after "+command, says(command, "what?"), answers(500, ""))
		default:
			f("no number after "+command, says(command, "what?"), other)
			f("NULs after "+command, says(command, "\x00\x00\x00\x00 x"), other)
		}
	}
	f("not FTP", func(conn net.Conn) { _, _ = io.WriteString(conn, "nonsense\r\n") },
		row{exchange.BadResponse, exchange.CauseOther, 0, ""})
	f("endless greeting", func(conn net.Conn) {
		for {
			if _, err := io.WriteString(conn, "220-hello\r\n"); err != nil {
				return
			}
		}
	}, row{exchange.HeaderTooLarge, exchange.CauseHeadTooLarge, 0, ""})
	f("HTTP", func(conn net.Conn) { _, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n") }, other)
	f("silence", hold(), row{exchange.Timeout, exchange.CauseHeadTimeout, 0, ""})
	f("closed", func(net.Conn) {}, row{exchange.ClosedEarly, exchange.CauseClosedBeforeHead, 0, ""})
}

// A panic of our own code is not handled as a hostile reply, although the client library calls that code.
func TestFTPHidesNoPanic(t *testing.T) {
	for name, conn := range map[string]net.Conn{"at dialling": nil, "at reading": broken{}} {
		cfg := testConfig(netip.MustParseAddrPort("127.0.0.1:1"))
		cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
			if conn == nil {
				_ = name[len(name)]
			}
			return conn, nil
		}
		func() {
			defer func() {
				if _, ours := recover().(runtime.Error); !ours {
					t.Errorf("%s: the panic was hidden", name)
				}
			}()
			fetch(t, newFetcher(t, cfg), "ftp://example.com")
		}()
	}
}

// broken is a connection whose Read has a bug.
type broken struct{ net.Conn }

func (broken) Read(p []byte) (int, error)      { return int(p[len(p)]), nil }
func (broken) Close() error                    { return nil }
func (broken) SetDeadline(time.Time) error     { return nil }
func (broken) SetReadDeadline(time.Time) error { return nil }

// The number of transfers in flight is bounded. An exchange that waits gets its turn, or ends with
// CauseNoLocalResource at its deadline, or when it is cancelled.
func TestFTPTransfersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const file = "User-agent: *\nDisallow: /\n"
		cfg := site(t, 0, ftpData(func(_, data net.Conn) {
			time.Sleep(time.Second)
			_, _ = io.WriteString(data, file)
		}))
		cfg.FTPData = 2
		f := newFetcher(t, cfg)
		var wait sync.WaitGroup
		began := time.Now()
		for range 20 {
			wait.Go(func() {
				if r, _ := fetch(t, f, "ftp://example.com"); rowOf(r) != answers(200, file) {
					t.Errorf("got %v", rowOf(r))
				}
			})
		}
		wait.Wait()
		if took := time.Since(began); len(f.ftpData) != 0 || took != 10*time.Second {
			t.Errorf("20 transfers of a second, two at once, took %v; %d are counted after the last", took, len(f.ftpData))
		}

		f.ftpData <- struct{}{}
		f.ftpData <- struct{}{}
		if r, _ := fetch(t, f, "ftp://example.com"); r.Outcome != exchange.Timeout ||
			r.Cause != exchange.CauseNoLocalResource || r.Timing.Total != 15*time.Second {
			t.Errorf("got %v (%v) after %v", r.Outcome, r.Cause, r.Timing.Total)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		session := &ftpSession{w: &wire{f: f, deadline: time.Now().Add(time.Hour)}, ctx: ctx}
		if err := session.enterData(); !errors.Is(err, context.DeadlineExceeded) || session.data != 0 ||
			time.Since(began) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		if len(f.ftpData) != 2 {
			t.Errorf("%d transfers are counted", len(f.ftpData))
		}
	})
}

// A control connection that ends at any byte is closed early.
func TestFTPCut(t *testing.T) {
	const file = "User-agent: *\nDisallow: /\n"
	cut, whole := 0, false
	for n := 0; !whole; n++ {
		synctest.Test(t, func(t *testing.T) {
			r, _ := fetch(t, newFetcher(t, site(t, 0, func(conn net.Conn) {
				ftpServer(file, nil)(&limited{Conn: conn, left: n})
				_ = conn.(stream).CloseWrite()
				silent(conn)
			})), "ftp://example.com")
			if whole = rowOf(r) == answers(200, file); whole {
				return
			}
			if cut++; r.Outcome != exchange.ClosedEarly || r.Body != nil || r.Timing.Total != 0 {
				t.Errorf("cut after %d bytes: got %v (%v) %d %q after %v", n, r.Outcome, r.Cause, r.Status, r.Body, r.Timing.Total)
			}
			if n > 1000 {
				t.Fatal("the dialogue never ends")
			}
		})
	}
	// Of the last reply only the code is needed.
	if least := len(
		"220 ready\r\n331 password\r\n230 welcome\r\n500 what?\r\n200 fine\r\n229 Entering (|||1|)\r\n150 here it comes\r\n226"); cut < least {
		t.Errorf("the file came after %d bytes, of a dialogue of more than %d", cut, least)
	}
}

// limited is a connection that fails after a number of bytes.
type limited struct {
	net.Conn
	left int
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p[:min(len(p), l.left)])
	if l.left -= n; err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}

// ftpFiles are the files of a real FTP server, and its authentication.
type ftpFiles struct {
	ftpd.Driver // nil: other methods panic
	files       map[string]string
	password    string
	broken      bool // authentication fails with an error
}

// CheckPasswd implements ftpd.Auth.
func (f *ftpFiles) CheckPasswd(_ *ftpd.Context, user, password string) (bool, error) {
	if f.broken {
		return false, errors.New("broken")
	}
	return user == "anonymous" && password == f.password, nil
}

// GetFile implements ftpd.Driver.
func (f *ftpFiles) GetFile(_ *ftpd.Context, path string, _ int64) (int64, io.ReadCloser, error) {
	file, ok := f.files[path]
	if !ok {
		return 0, nil, fs.ErrNotExist
	}
	if file == "a folder" {
		return 0, io.NopCloser(iotest.ErrReader(errors.New("it is a folder"))), nil
	}
	return int64(len(file)), io.NopCloser(strings.NewReader(file)), nil
}

// A real FTP server from a library.
func TestFTPServer(t *testing.T) {
	noLeaks(t)
	const file = "User-agent: *\nDisallow: /\n"
	lines := strings.Repeat("Disallow: /x\n", 100_000)
	startAt := func(t *testing.T, files *ftpFiles, host string) Config {
		t.Helper()
		listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Skipf("SKIPPED: %v", err)
		}
		s, err := ftpd.NewServer(&ftpd.Options{Driver: files, Auth: files, Perm: ftpd.NewSimplePerm("nobody", "nobody"),
			Logger: new(ftpd.DiscardLogger)})
		if err != nil {
			t.Fatal(err)
		}
		var serving sync.WaitGroup
		serving.Go(func() { _ = s.Serve(listener) })
		t.Cleanup(func() {
			_ = listener.Close()
			serving.Wait()
		})
		cfg := testConfig(netip.MustParseAddrPort(listener.Addr().String()))
		files.password = cfg.UserAgent
		return cfg
	}
	start := func(t *testing.T, files *ftpFiles) Config { t.Helper(); return startAt(t, files, "127.0.0.1") }
	f := func(name string, files *ftpFiles, want row, truncated bool) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Helper()
			r, _ := fetch(t, newFetcher(t, start(t, files)), "ftp://example.com")
			if got := rowOf(r); got != want || r.Truncated != truncated || r.Attempts != 1 ||
				r.Final.String() != "ftp://example.com/robots.txt" {
				t.Errorf("got %v (%v) %d, %d bytes, truncated %v, %d attempts, from %s", r.Outcome, r.Cause, r.Status, len(r.Body),
					r.Truncated, r.Attempts, r.Final)
			}
		})
	}
	at := func(path, file string) *ftpFiles { return &ftpFiles{files: map[string]string{path: file}} }
	f("a file", at("/robots.txt", file), answers(200, file), false)
	f("an empty file", at("/robots.txt", ""), answers(200, ""), false)
	f("a file that is larger than the bound", at("/robots.txt", lines), answers(200, lines[:512_000/13*13]), true)
	f("a file in which line ends count", at("/robots.txt", "a\nb\r\nc\rd\x00\xff"), answers(200, "a\nb\r\nc\rd\x00\xff"),
		false)
	// This server replies 551 instead of 550. In RFC 959 that is another failure.
	f("no file", at("/index.html", file), answers(500, ""), false)
	f("a folder", at("/robots.txt", "a folder"), row{exchange.ClosedEarly, exchange.CauseClosedInBody, 0, ""}, false)
	f("authentication fails", &ftpFiles{broken: true}, answers(500, ""), false) // by a 550
	t.Run("not for anonymous", func(t *testing.T) {
		files := at("/robots.txt", file)
		cfg := start(t, files)
		files.password = "another"
		if r, _ := fetch(t, newFetcher(t, cfg), "ftp://example.com"); rowOf(r) != answers(500, "") {
			t.Errorf("got %v (%v)", rowOf(r), r.Cause)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		f := newFetcher(t, start(t, at("/robots.txt", file)))
		var wait sync.WaitGroup
		for range 50 {
			wait.Go(func() {
				if r, _ := fetch(t, f, "ftp://example.com"); rowOf(r) != answers(200, file) {
					t.Errorf("got %v (%v)", rowOf(r), r.Cause)
				}
			})
		}
		wait.Wait()
	})
	t.Run("over IPv6", func(t *testing.T) {
		if r, _ := fetch(t, newFetcher(t, startAt(t, at("/robots.txt", file), "::1")),
			"ftp://example.com"); rowOf(r) != answers(200, file) {
			t.Errorf("got %v (%v)", rowOf(r), r.Cause)
		}
	})
	t.Run("an address as host, at a port", func(t *testing.T) {
		cfg := start(t, at("/robots.txt", file))
		addr := netip.AddrPortFrom(cfg.ConnectTo[0].Addr, cfg.ConnectTo[0].ToPort)
		cfg.ConnectTo = nil
		if r, _ := fetch(t, newFetcher(t, cfg), "ftp://"+addr.String()); rowOf(r) != answers(200, file) || r.Remote != addr {
			t.Errorf("got %v (%v) from %s", rowOf(r), r.Cause, r.Remote)
		}
		cfg.AllowPrivate = false
		if r, _ := fetch(t, newFetcher(t, cfg), "ftp://"+addr.String()); r.Outcome != exchange.BlockedAddress {
			t.Errorf("got %v (%v) without AllowPrivate", rowOf(r), r.Cause)
		}
	})
}
