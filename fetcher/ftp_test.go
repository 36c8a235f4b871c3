package fetcher

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// ftpServer is a handler that speaks FTP: replies answers by command, "" stands for what an honest server says, and
// data is what a transfer sends.
func ftpServer(data string, replies map[string]string) func(net.Conn) {
	return func(conn net.Conn) {
		var wait sync.WaitGroup
		defer wait.Wait()
		say := func(command, honest string) bool {
			if text, ok := replies[command]; ok {
				honest = text
			}
			_, err := io.WriteString(conn, honest+"\r\n")
			return err == nil
		}
		say("", "220 ready")
		lines := bufio.NewScanner(conn)
		var listener net.Listener
		defer func() {
			if listener != nil {
				_ = listener.Close()
			}
		}()
		for lines.Scan() {
			command, argument, _ := strings.Cut(lines.Text(), " ")
			var ok bool
			switch command {
			case "USER":
				ok = say(command, "331 password")
			case "PASS":
				ok = say(command, "230 welcome")
			case "FEAT":
				ok = say(command, "500 what?")
			case "TYPE":
				ok = say(command, "200 fine")
			case "EPSV":
				if _, refuse := replies["EPSV"]; !refuse {
					listener, _ = net.Listen("tcp", "127.0.0.1:0")
					ok = say(command, fmt.Sprintf("229 Entering (|||%d|)", listener.Addr().(*net.TCPAddr).Port))
				} else {
					ok = say(command, "")
				}
			case "PASV":
				ok = say(command, "502 no")
			case "RETR":
				if argument != "robots.txt" {
					ok = say("", "550 no")
					break
				}
				if text, refuse := replies["RETR"]; refuse {
					ok = say("RETR", text)
					break
				}
				ok = say(command, "150 here it comes")
				if transfer, err := listener.Accept(); err == nil {
					_, _ = io.WriteString(transfer, data)
					_ = transfer.Close()
				}
				ok = ok && say("226", "226 done")
			default:
				ok = say(command, "221 bye")
			}
			if !ok {
				return
			}
		}
	}
}

func TestFTP(t *testing.T) {
	noLeaks(t)
	f := func(name string, handle func(net.Conn), want row) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(serve(t, handle))
			cfg.MaxBody = 1000
			if want.outcome == exchange.Timeout {
				cfg.Timeout = time.Second
			}
			r, asked := fetch(t, newFetcher(t, cfg), "ftp://example.com")
			if got := rowOf(r); got != want || len(asked) != 1 || asked[0] != "ftp://example.com/robots.txt" {
				t.Errorf("got %v (%v) after %v", got, r.Cause, asked)
			}
		})
	}
	const file = "User-agent: *\nDisallow: /\n"
	says := func(command, reply string) func(net.Conn) { return ftpServer(file, map[string]string{command: reply}) }
	f("file", ftpServer(file, nil), answers(200, file))
	f("over the bound", ftpServer(strings.Repeat("Disallow: /x\n", 100), nil), answers(200, strings.Repeat("Disallow: /x\n", 76)))
	f("no file", says("RETR", "550 no such file"), answers(404, ""))
	f("busy", says("RETR", "450 try later"), answers(503, ""))
	f("not for anonymous", says("PASS", "530 no"), answers(500, ""))
	f("not for anonymous at once", says("USER", "530 no"), answers(500, ""))
	f("too many users", says("", "421 later"), answers(503, ""))
	f("ended by another word", says("226", "250 done"), answers(200, file))
	f("given up in the middle", says("226", "426 sorry"), row{exchange.ClosedEarly, exchange.CauseClosedInBody, 0, ""})
	f("passive mode refused", says("EPSV", "500 no"), answers(500, ""))
	f("hostile passive mode", ftpServer(file, map[string]string{"EPSV": "500 no", "PASV": "227 )("}), row{exchange.BadResponse, exchange.CauseOther, 0, ""})
	f("passive mode elsewhere", ftpServer(file, map[string]string{"EPSV": "500 no", "PASV": "227 (10,0,0,1,0,0)"}), row{exchange.BadResponse, exchange.CauseOther, 0, ""})
	f("not FTP", func(conn net.Conn) { _, _ = io.WriteString(conn, "nonsense\r\n") }, row{exchange.BadResponse, exchange.CauseOther, 0, ""})
	f("endless greeting", func(conn net.Conn) {
		for {
			if _, err := io.WriteString(conn, "220-hello\r\n"); err != nil {
				return
			}
		}
	}, row{exchange.HeaderTooLarge, exchange.CauseHeadTooLarge, 0, ""})
	f("silence", hold(), row{exchange.Timeout, exchange.CauseHeadTimeout, 0, ""})
	f("closed", func(net.Conn) {}, row{exchange.ClosedEarly, exchange.CauseClosedBeforeHead, 0, ""})
}

// Only so many transfers are under way at once. Who waits for another to end gets its turn, or says after its time that
// this machine was short of something.
func TestFTPTransfersAreBounded(t *testing.T) {
	noLeaks(t)
	const file = "User-agent: *\nDisallow: /\n"
	cfg := testConfig(serve(t, ftpServer(file, nil)))
	cfg.FTPData = 2
	f := newFetcher(t, cfg)
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			if r, _ := fetch(t, f, "ftp://example.com"); rowOf(r) != answers(200, file) {
				t.Errorf("got %v", rowOf(r))
			}
		})
	}
	wait.Wait()
	if len(f.ftpData) != 0 {
		t.Errorf("%d transfers are counted after the last", len(f.ftpData))
	}

	cfg.Timeout, cfg.Retries = 300*time.Millisecond, 0
	f = newFetcher(t, cfg)
	f.ftpData <- struct{}{}
	f.ftpData <- struct{}{}
	if r, _ := fetch(t, f, "ftp://example.com"); r.Outcome != exchange.Timeout || r.Cause != exchange.CauseNoLocalResource {
		t.Errorf("got %v (%v)", r.Outcome, r.Cause)
	}
	if len(f.ftpData) != 2 {
		t.Errorf("%d transfers are counted", len(f.ftpData))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	session := &ftpSession{w: &wire{f: f, deadline: time.Now().Add(time.Hour)}, ctx: ctx}
	if err := session.enterData(); !errors.Is(err, context.Canceled) || session.data != 0 {
		t.Errorf("got %v", err)
	}
}
