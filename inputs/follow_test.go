package inputs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestFollowOptOut shows that added entries apply within seconds, that deleted entries apply until the process ends,
// and that an unreadable file changes nothing.
func TestFollowOptOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "optout.txt")
	start := time.Now()
	// Times of files are set: those of the system do not follow the time of the bubble.
	write := func(t *testing.T, text string, age time.Duration) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, start, start.Add(age)); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		write(t, "a.test\n", 0)
		list, err := FollowOptOut(path)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex // the bubble's time orders the two, which the race detector does not see
		told := ""
		go list.Follow(t.Context(), func(added int, err error) {
			mu.Lock()
			defer mu.Unlock()
			told += fmt.Sprintf("%d %v;", added, err != nil)
		})
		step := func(what string, wait time.Duration, wantTold string, has, hasNot string) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if told != wantTold || has != "" && !list.Contains(has) || hasNot != "" && list.Contains(hasNot) {
				t.Errorf("%s: told %q, want %q; has %s %v, %s %v", what, told, wantTold, has, list.Contains(has), hasNot,
					list.Contains(hasNot))
			}
			told = ""
		}
		step("nothing has changed", time.Minute, "", "a.test", "b.test")
		write(t, "a.test\nb.test\n192.0.2.0/24\n", time.Second)
		step("two more", 6*time.Second, "2 false;", "www.b.test", "c.test")
		if !list.Covers(netip.MustParseAddr("192.0.2.7")) || list.Entries() != 3 {
			t.Errorf("%d entries", list.Entries())
		}
		write(t, "c.test\nd.te", 2*time.Second)
		step("the file is being written", 6*time.Second, "2 false;", "b.test", "d.test")
		write(t, "a.test\nno host\n", 3*time.Second)
		step("a line that is no host", time.Minute, "0 true;", "c.test", "")
		write(t, "", 4*time.Second)
		step("empty", 6*time.Second, "0 false;", "a.test", "")
		write(t, "e.test\n", 5*time.Second)
		step("the same size and time", 6*time.Second, "1 false;", "e.test", "f.test")
		write(t, "f.test\n", 5*time.Second)
		step("the same size and time", 31*time.Second, "1 false;", "f.test", "")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		step("deleted", time.Minute, "0 true;", "a.test", "")
		write(t, "f.test\n", 5*time.Second)
		step("there again as it was", time.Minute, "", "a.test", "")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		step("deleted again", time.Minute, "0 true;", "a.test", "")
		write(t, "g.test\n", 6*time.Second)
		step("there again", 6*time.Second, "1 false;", "g.test", "")
	})
}

// TestFollowAfterError shows that a file which cannot be read for a passing reason is read again, although it has not
// changed since, and that the reason is reported once.
func TestFollowAfterError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "optout.txt")
	if err := os.WriteFile(path, []byte("a.test\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		reads, told := 0, 0
		go follow(t.Context(), path, fileSum{}, func() (fileSum, error) {
			if reads++; reads <= 3 {
				return fileSum{}, errors.New("too many open files")
			}
			return sumFile(t.Context(), path)
		}, func(error) { told++ })
		time.Sleep(time.Minute)
		synctest.Wait()
		if reads != 4 || told != 1 {
			t.Errorf("read %d times, told %d times; want 4 and 1", reads, told)
		}
	})
}
