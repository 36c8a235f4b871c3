package histories

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
	led "github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/bubble"
	"github.com/bulkscan/bulkscan/nightly"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/repair"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/statistics"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

// history is a dataset, the commands run on it, and the oracle's knowledge about it.
type history struct {
	list  string // path
	disk  *storetest.Disk
	lines []string // what has happened

	scans   map[string]*scanState
	through string          // the date up to which nights were pruned
	foreign map[string]bool // names of foreign files, whose content is "mine"
	left    string          // a damaged head, without which a later one continues
	asked   map[site]bool   // by the last command
}

// site is one of a scan.
type site struct {
	scan string
	seq  int64
}

// command is what a process does to the dataset.
type command struct {
	name      string
	run       func(ctx context.Context, st store.Store) error
	begun     func()       // notes for the oracle what may change from now on
	refuses   func() bool  // reports whether it may fail without an accident; nil: never
	done      func() error // checks what must be true once it has succeeded; may be nil
	publishes bool         // after its success, readers get all published scans
	letsGo    bool         // it also succeeds if the scan is damaged
	of        *scanState   // nil: of the dataset
}

// action is one kind of event: its frequency, and a function that makes a command from two bytes; nil for none.
type action struct {
	what    string
	often   int
	command func(h *history, a, b byte) *command
}

// actions are all kinds of events. A new kind gets a line here, and says in begun and done what it may change.
var actions = []action{
	{"scan", 5, func(h *history, a, b byte) *command { // a scan of another day
		time.Sleep(24 * time.Hour)
		return h.scanning(h.known("s-"+today(), today()), a, b)
	}},
	{"again", 5, on(func(s *scanState) bool { return s.id[0] == 's' }, (*history).scanning)}, // the same command again
	{"night", 3, func(h *history, a, b byte) *command {
		time.Sleep(24 * time.Hour)
		return h.night(a)
	}},
	{"night again", 1, func(h *history, a, _ byte) *command { return h.night(a) }}, // again, or after a scan of that day
	{"compact", 4, on(func(s *scanState) bool { return s.there }, (*history).compacting)},
	{"release", 3, on(func(s *scanState) bool { return s.there }, (*history).releasing)},
	{"withhold", 2, on(func(s *scanState) bool { return s.publication == "pending" || s.publication == "held" },
		(*history).withholding)},
	{"prune", 4, func(h *history, a, b byte) *command {
		return h.pruning(nightly.Keep{Nights: int(a % 5), Bodies: int(b % 5), Evidence: int(b / 8 % 5)})
	}},
	{"damage", 6, on(func(s *scanState) bool {
		return s.there && s.complete && s.damaged == "" && !s.pruned &&
			s.untouched()
	}, (*history).damaging)},
	{"repair", 4, on(func(s *scanState) bool { return s.damaged != "" }, (*history).repairing)},
	{"restart", 3, on(func(s *scanState) bool { return s.there && s.id[0] == 's' }, (*history).restarting)},
	{"rebuild", 1, func(h *history, _, _ byte) *command {
		none := func() bool {
			return !h.any(func(s *scanState) bool { return s.there && s.publication == "published" && s.complete })
		}
		return &command{name: "derive the history anew", refuses: none, run: func(ctx context.Context, st store.Store) error {
			return led.Rebuild(ctx, st, led.Options{})
		}}
	}},
	{"stats", 1, on(func(s *scanState) bool { return s.there && s.complete }, (*history).counting)},
	{"another observer", 1, func(h *history, a, b byte) *command { // the history follows the first one
		if h.files()[schema.LedgerName] == "" {
			return nil
		}
		return h.scanning(h.known("o-"+today(), today()), a, b)
	}},
	{"withdraw", 2, on(func(s *scanState) bool { return s.there && s.complete && s.publication != "pending" },
		(*history).withdrawing)},
}

// on makes a command for one of these scans.
func on(of func(*scanState) bool, make func(h *history, s *scanState, a, b byte) *command) func(h *history, a,
	b byte) *command {
	return func(h *history, a, b byte) *command {
		var some []*scanState
		for _, id := range slices.Sorted(maps.Keys(h.scans)) {
			if of(h.scans[id]) {
				some = append(some, h.scans[id])
			}
		}
		if len(some) == 0 {
			return nil
		}
		return make(h, some[int(a)%len(some)], a/16, b)
	}
}

func (h *history) compacting(s *scanState, _, b byte) *command {
	return &command{name: "compact", of: s, refuses: func() bool { return !s.there }, run: func(ctx context.Context,
		st store.Store) error {
		_, err := compact.Scan(ctx, st, s.id, compact.Options{PartBytes: int64(b) << 8}) // 0: all in one
		return err
	}}
}

func (h *history) releasing(s *scanState, _, _ byte) *command {
	return &command{name: "release", of: s, publishes: true, refuses: func() bool {
		return !s.there || !s.complete ||
			s.date <= h.through
	}, run: func(ctx context.Context, st store.Store) error {
		return scan.Release(ctx, st, s.id, publishing)
	}}
}

func (h *history) withholding(s *scanState, _, b byte) *command {
	to := []commit.Publication{commit.PublicationHeld, commit.PublicationDiscarded}[b%2]
	return &command{name: "make " + string(to), of: s, refuses: func() bool { return true }, run: func(ctx context.Context,
		st store.Store) error {
		return commit.SetPublication(ctx, st, nil, s.id, to)
	}}
}

// withdrawing is the command by which a person withdraws a published or held scan or night, with a reason. It needs no
// file of the scan.
func (h *history) withdrawing(s *scanState, _, _ byte) *command {
	const why = "a test"
	was := ""
	return &command{
		name: "withdraw", of: s, publishes: true, letsGo: true,
		refuses: func() bool { return !s.there || s.pruned || s.publication == "held" && s.id[0] != 'n' },
		begun:   func() { was, s.withdrawn, s.remade = s.publication, true, true },
		run: func(ctx context.Context, st store.Store) (err error) {
			date, night := strings.CutPrefix(s.id, "night-")
			o := h.nights(st, nightly.Keep{})
			o.Date = date
			switch {
			case !night:
				return scan.Withdraw(ctx, st, s.id, why, publishing)
			case was == "held":
				_, err = nightly.Discard(ctx, o)
			default:
				_, err = nightly.Withdraw(ctx, o, why)
			}
			return err
		},
		done: func() error {
			if was == "published" && !h.caused(commit.CauseWithdraw, s.id, why) {
				return fmt.Errorf("no head says why scan %s was withdrawn", s.id)
			}
			return nil
		},
	}
}

func (h *history) pruning(keep nightly.Keep) *command {
	if h.damaged() {
		return nil // a pruning would refuse its repair
	}
	return &command{name: fmt.Sprintf("prune, keeping %+v", keep), begun: func() { h.prunes(keep) },
		done: func() error { return h.wasPruned(keep) }, run: func(ctx context.Context, st store.Store) error {
			o := h.nights(st, keep)
			o.Date = today()
			err := nightly.Prune(ctx, o, 0, false)
			if many, ok := errors.AsType[*scan.ManyError](err); ok {
				err = nightly.Prune(ctx, o, len(many.Dates), false)
			}
			return err
		}}
}

// repairing is the command that repairs a scan.
func (h *history) repairing(s *scanState, _, _ byte) *command {
	published := s.publication == "published" // else it stays as it is, and no other scan is published either
	begun := func() { s.open = true }
	return &command{name: "repair", of: s, publishes: published, begun: begun, run: func(ctx context.Context,
		st store.Store) error {
		err := h.scan(ctx, st, scanning{id: s.id, date: s.date, repair: true})
		if _, intact := errors.AsType[*repair.IntactError](err); intact {
			return nil
		}
		return err
	}}
}

func (h *history) restarting(s *scanState, _, b byte) *command {
	if b&1 > 0 {
		time.Sleep(24 * time.Hour)
	}
	date := today()
	return &command{name: "restart", of: s, publishes: true, refuses: func() bool {
		return s.pruned || !s.untouched() ||
			s.publication == "discarded" || date <= h.through
	}, begun: func() { s.begunAnew, s.remade = true, true },
		run: func(ctx context.Context, st store.Store) error {
			return h.scan(ctx, st, scanning{id: s.id, date: date, restart: true})
		}}
}

func (h *history) counting(s *scanState, _, _ byte) *command {
	return &command{name: "stats", of: s, refuses: func() bool { return !s.there || !s.complete },
		run: func(ctx context.Context, st store.Store) error {
			lock, err := statistics.Lock(ctx, st, s.id)
			if err != nil {
				return err
			}
			return errors.Join(stats.Write(ctx, st, s.id, survey.Options{Registry: tokens.Default(), Log: quiet}), lock.Unlock())
		}}
}

func today() string { return ago(0) }

// ago is the date of so many days ago.
func ago(days byte) string { return time.Now().UTC().AddDate(0, 0, -int(days)).Format(time.DateOnly) }

// known returns a scan that a command may make.
func (h *history) known(id, date string) *scanState {
	if h.scans[id] == nil {
		h.scans[id] = &scanState{id: id, date: date, without: map[string]bool{}, parts: map[string]map[string]string{}}
	}
	return h.scans[id]
}

// unpublished has the bits that make a scan unpublished.
const unpublished = 96

// scanning returns the command of a scan.
func (h *history) scanning(s *scanState, a, b byte) *command {
	o := scanning{id: s.id, date: s.date, merged: a&16 > 0, noPublish: a&unpublished == unpublished}
	name := "scan"
	if b%4 == 0 {
		o.interrupted = 1 + int64(b/4)%int64(len(hosts)) // that many requests may never come
		name += fmt.Sprintf(", interrupted at request %d", o.interrupted)
	}
	return &command{
		// unless it was withheld
		name: fmt.Sprintf("%s, merged %v, unpublished %v", name, o.merged, o.noPublish), of: s, publishes: !o.noPublish,
		refuses: func() bool {
			return o.interrupted > 0 || s.pruned || !s.untouched() || s.publication == "discarded" || s.date <= h.through
		},
		begun: func() { s.open = true },
		run:   func(ctx context.Context, st store.Store) error { return h.scan(ctx, st, o) },
		done: func() error {
			if !s.complete {
				return errors.New("the scan has succeeded, and is not complete")
			}
			return nil
		},
	}
}

// night returns the command of tonight.
func (h *history) night(a byte) *command {
	keep := nightly.Keep{}
	if a&1 > 0 && !h.damaged() {
		keep = nightly.Keep{Nights: 1 + int(a/2)%4, Bodies: 1 + int(a/8)%4, Evidence: 1}
	}
	var begun *nightly.Night
	local := a&32 > 0 // no server tells the date, so nights after a pause are held
	return &command{
		name: fmt.Sprintf("night, keeping %+v, by a local list %v", keep, local),
		begun: func() { // the night is published before it prunes
			s := h.known("night-"+today(), today())
			is := *s
			s.publication, s.there = "published", true
			h.prunes(keep)
			s.publication, s.there = is.publication, is.there
		},
		refuses: func() bool { return today() <= h.through },
		run: func(ctx context.Context, st store.Store) (err error) {
			o := h.nights(st, keep)
			if local {
				o.List.Source = h.list
			}
			begun, err = nightly.Run(ctx, o)
			return err
		},
		done: func() error {
			if begun.State != nightly.Published && begun.State != nightly.Held && begun.State != nightly.Discarded {
				return fmt.Errorf("the night has ended %+v", begun)
			}
			return nil
		},
	}
}

// nights are the options of nights.
func (h *history) nights(st store.Store, keep nightly.Keep) nightly.Options {
	return nightly.Options{
		Store: st, Keep: keep, Log: quiet, Publishing: publishing, Report: survey.Options{Registry: tokens.Default(),
			Log: quiet},
		List: nightly.ListOptions{Source: "https://lists.test/hosts.txt", Client: &http.Client{Transport: dated{}},
			Count: func(context.Context, string) (int64, error) { return int64(len(hosts)), nil }},
		Scan: func(ctx context.Context, s nightly.Scan) error {
			return h.scan(ctx, st, scanning{id: s.ScanID, date: s.Date, noPublish: true})
		},
	}
}

// dated is a server that knows the time.
type dated struct{}

func (dated) RoundTrip(r *http.Request) (*http.Response, error) {
	header := http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}
	return &http.Response{StatusCode: http.StatusOK, Request: r, Header: header,
		Body: io.NopCloser(strings.NewReader("list"))}, nil
}

// tooOld reports whether what is kept for so many days is too old on a date; 0 is for ever.
func tooOld(date string, days int) bool { return days > 0 && date <= ago(byte(days)) }

// prunes notes for the oracle what a pruning may delete: old files of published and discarded scans, but not of the
// newest date. A night that was killed before its publication is published first.
func (h *history) prunes(keep nightly.Keep) {
	newest := ""
	for _, s := range h.scans {
		if s.there && s.publication == "published" {
			newest = max(newest, s.date)
		}
	}
	for _, s := range h.scans {
		waits := s.publication == "pending" && s.complete && strings.HasPrefix(s.id, "night-")
		if s.there && s.date < newest && (s.publication == "discarded" || s.publication == "published" || waits) {
			s.pruned = s.pruned || tooOld(s.date, keep.Nights)
			s.without["bodies"] = s.without["bodies"] || tooOld(s.date, keep.Bodies)
			s.without["evidence"] = s.without["evidence"] || tooOld(s.date, keep.Evidence)
		}
	}
}

// wasPruned checks that a pruning has deleted all that it may delete.
func (h *history) wasPruned(keep nightly.Keep) error {
	for _, s := range h.scans {
		if s.pruned && s.there && tooOld(s.date, keep.Nights) && s.date > h.through {
			return fmt.Errorf("scan %s is too old, and is still there", s.id)
		}
	}
	return nil
}

// damaging deletes a file of a scan, or flips a bit of it. It runs no command of bulkscan.
func (h *history) damaging(s *scanState, a, b byte) *command {
	parts, err := live(s.id, h.files())
	if err != nil || len(parts) == 0 {
		return nil
	}
	files := parts[int(a)%len(parts)].Files
	file := files[int(b/2)%len(files)]
	if !slices.Contains(s.tables, file.Table) {
		return nil
	}
	h.lines = append(h.lines, "damage "+file.Name)
	s.damaged, s.remade, s.hurt = file.Name, true, true
	if s.rows, err = s.read(h.files()); err != nil { // without that part
		panic(err)
	}
	if data := []byte(h.files()[file.Name]); b&1 > 0 {
		data[len(data)/3] ^= 1
		_ = h.store().Put(context.Background(), file.Name, data)
	} else {
		_ = h.store().Delete(context.Background(), file.Name)
	}
	return nil
}

// store returns the dataset for a process without an accident.
func (h *history) store() *store.Dir { return dirOn(h.disk) }

func dirOn(disk *storetest.Disk) *store.Dir {
	dir, err := store.NewDirOn(disk, root)
	if err != nil {
		panic(err)
	}
	return dir
}

// plant puts a foreign file into each folder of the dataset that has none. Beside the parts of a scan it puts a file
// that is named like a part.
func (h *history) plant() {
	if h.foreign == nil {
		h.foreign = map[string]bool{"mine.txt": true, "_scans/mine.json": true, "history/closed-mine.txt": true,
			"_nights/mine.txt": true}
	}
	for name := range h.files() {
		folder, base := path.Split(name)
		h.foreign[folder+"mine.json"] = true
		if part, is := strings.CutSuffix(base, ".parquet"); is && strings.HasPrefix(part, "part-") {
			h.foreign[folder+part+"-mine.txt"] = true
		}
	}
	there := h.files()
	for name := range h.foreign {
		if there[name] == "" {
			if err := h.store().Put(context.Background(), name, []byte("mine")); err != nil {
				panic(err)
			}
		}
	}
}

// The ways in which a process ends.
const (
	lives    = iota
	killed   // by a signal: the system still writes everything
	power    // the machine loses it, with what was not synced
	failing  // a call fails
	full     // the disk is
	together // it lives, and at one of its steps another command runs from its beginning to its end, or the same command
	harmed   // it lives, and a file was damaged before it

	// killed; before that, from the same beginning, it is killed at moments from the first to the last, each time followed
	// by another command or kill, and by the same command
	everywhere
)

// fates is how often each happens.
var fates = [...]int{lives, lives, killed, killed, power, power, failing, full, together, together, harmed, harmed}

// fateOf returns the fate of a byte.
func fateOf(at byte) int {
	if at == 255 {
		return everywhere
	}
	return fates[int(at)%len(fates)]
}

// moments is the number of kills for the fate everywhere.
const moments = 4

// perform runs a command as a process with a fate, and then runs the oracle. at chooses the call that the fate hits,
// among the calls that the command makes if it lives.
func (h *history) perform(c *command, fate int, at uint16, beside *command) error {
	h.plant()
	if fate == harmed {
		return h.harm(c, at)
	}
	var r rehearsal
	if fate != lives {
		r = h.rehearse(c)
	}
	if fate == everywhere {
		for i := range uint16(moments) {
			back, at := h.mark(), at/moments+i*(1<<16/moments)
			if i > 0 {
				r = h.rehearse(c) // the day may have changed
			}
			if err := h.attempt(c, []int{killed, power, failing}[(int(i)+int(at))%3], at, r, nil); err != nil {
				return err
			}
			next, fate := c, killed // a second death, somewhere
			if i%2 > 0 {            // or the next scan, which publishes what was left unpublished
				time.Sleep(24 * time.Hour)
				next, fate = h.scanning(h.known("s-"+today(), today()), 0, 1), lives
			}
			err := h.attempt(next, fate, at*40503, r, nil)
			if err == nil {
				err = h.attempt(c, lives, 0, r, nil)
			}
			if err != nil {
				return fmt.Errorf("after a death: %w", err)
			}
			back()
		}
		fate = killed
	}
	return h.attempt(c, fate, at, r, beside)
}

// harm damages a file and runs a command. If verify or the command names the file, harm undoes the damage, as a person
// with a copy would. A twin of the dataset has no damage. Readers give the same answers as for the twin, or they, and
// verify or the command, report a problem.
func (h *history) harm(c *command, at uint16) error {
	name, as := h.toHarm(at)
	if name == "" || h.damaged() {
		return h.attempt(c, lives, 0, rehearsal{}, nil)
	}
	ctx, twin, was := context.Background(), h.disk.Restart(storetest.Nothing), h.files()[name]
	h.disk = h.disk.Restart(storetest.Nothing)
	put := func(data string) error {
		if data == "" {
			return h.store().Delete(ctx, name)
		}
		return h.store().Put(ctx, name, []byte(data))
	}
	h.asked = map[site]bool{}
	h.lines = append(h.lines, fmt.Sprintf("%s has %d bytes instead of %d; %s", name, len(as), len(was), c.name))
	if err := put(as); err != nil {
		return err
	}
	if err := h.like(twin); err != nil {
		return fmt.Errorf("before the command: %w", err)
	}
	if c.begun != nil {
		c.begun()
	}
	run := func(disk *storetest.Disk) error {
		time.Sleep(time.Minute)
		return c.run(ctx, dirOn(disk))
	}
	twinErr, err := run(twin), run(h.disk)
	h.lines[len(h.lines)-1] += fmt.Sprintf("  [%.200v; without damage %.100v]", err, twinErr)
	found := h.verified(verify.Damaged)
	if err == nil && found == nil {
		if err := h.like(twin); err != nil {
			return fmt.Errorf("after the command, and verify finds nothing: %w", err)
		}
		if strings.HasPrefix(name, schema.HeadFolder) {
			h.left = name
		}
	} else if h.files()[name] == as && !h.rederives(name, at) {
		if gone, err := h.letGo(c, name, at, twin); gone || err != nil {
			return errors.Join(err, put(was), h.look(true))
		}
		if err := put(was); err != nil {
			return err
		}
		if again := run(h.disk); twinErr == nil && again != nil {
			return fmt.Errorf("without the damage the command fails still: %w", again)
		}
		if err := h.like(twin); twinErr == nil && err != nil {
			return fmt.Errorf("without the damage: %w", err)
		}
	}
	if found := h.verified(verify.Damaged); found != nil {
		return fmt.Errorf("the damage was taken back: %w", found)
	}
	return h.look(true)
}

// rederives derives a damaged history anew, as another remedy, and reports whether that has helped.
func (h *history) rederives(name string, at uint16) bool {
	return at&1 > 0 && strings.HasPrefix(name, "history/") && led.Rebuild(context.Background(), h.store(),
		led.Options{}) == nil && h.verified(verify.Damaged) == nil
}

// letGo withdraws the scan of a damaged file, and reports whether that was possible. It also withdraws the scan from
// the undamaged twin. Then readers of both must give the same answers, without a problem.
func (h *history) letGo(c *command, name string, at uint16, twin *storetest.Disk) (gone bool, err error) {
	for _, s := range h.scans {
		if at&2 == 0 || s == c.of || s.publication != "published" || s.pruned || !strings.Contains(name, s.id) {
			continue
		}
		withdraw := h.withdrawing(s, 0, 0)
		withdraw.begun()
		for _, disk := range []*storetest.Disk{twin, h.disk} {
			if err := withdraw.run(context.Background(), dirOn(disk)); err != nil {
				return true, fmt.Errorf("the withdrawal of scan %s: %w", s.id, err)
			}
		}
		h.lines[len(h.lines)-1] += "; it is withdrawn"
		s.publication = string(commit.PublicationDiscarded)
		got, want := h.answers(h.store()), h.answers(dirOn(twin))
		delete(got, "status") // which shows the scan
		delete(want, "status")
		if !maps.Equal(got, want) {
			return true, fmt.Errorf("after the withdrawal of scan %s readers say %.500v\nand without damage %.500v", s.id, got,
				want)
		}
		return true, withdraw.done()
	}
	return false, nil
}

// toHarm returns a file, and its damaged content; "" is none. It spares files of scans that are not complete and
// published, which records may not name, and the records of their nights. It does not delete the newest head, since
// only the records of nights would show that.
func (h *history) toHarm(at uint16) (name, as string) {
	files := h.files()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(files)), func(name string) bool {
		return h.foreign[name] || files[name] == "" || path.Base(name)[0] == '.' || path.Base(name) == "lock" ||
			h.any(func(s *scanState) bool {
				ofNight := nightly.Folder + strings.TrimPrefix(s.id, "night-") + "/"
				return (strings.Contains(name, s.id) || strings.HasPrefix(name, ofNight)) &&
					(!s.complete || s.open || s.begunAnew || s.publication != "published")
			})
	})
	if len(names) == 0 {
		return "", ""
	}
	name = names[int(at)*len(names)>>16]
	data, way := []byte(files[name]), at%3
	if heads, _ := commit.Heads(context.Background(), h.store()); way == 2 && len(heads) > 0 &&
		name == heads[len(heads)-1] {
		way = 1
	}
	switch way {
	case 0:
		data[len(data)*int(at%101)/101] ^= 1
	case 1:
		data = data[:len(data)/2]
	default:
		data = nil
	}
	return name, string(data)
}

// mark returns a function that restores the present state of the history.
func (h *history) mark() (back func()) {
	disk, scans, is := h.disk.Restart(storetest.Nothing), map[string]scanState{}, *h
	h.disk = disk.Restart(storetest.Nothing)
	for id, s := range h.scans {
		was := *s
		was.without = maps.Clone(s.without)
		scans[id] = was
	}
	return func() {
		known := h.scans
		*h = is
		h.disk, h.scans = disk, map[string]*scanState{}
		for id := range scans {
			*known[id] = scans[id] // which commands have
			h.scans[id] = known[id]
		}
	}
}

// rehearsal is a command that lives: its calls of the disk, its steps in the store, and the files that it leaves.
type rehearsal struct {
	calls   []int // the numbers of those that change something
	changes []int // the numbers of changes, of consecutive writes of a file that of the first
	names   []int // of those that give or take a name, which a sync is to follow
	steps   []int
	left    map[string]string
}

func (h *history) rehearse(c *command) (r rehearsal) {
	disk := h.disk.Restart(storetest.Nothing)
	h.disk = h.disk.Restart(storetest.Nothing)
	h.asked = map[site]bool{}
	var steps atomic.Int64
	_ = c.run(context.Background(), &storetest.Faults{Store: dirOn(disk), Fail: func(storetest.Step) error {
		steps.Add(1)
		return nil
	}})
	changes, last := 0, storetest.Call{}
	for i, call := range disk.Calls() {
		if !call.Changes() {
			continue
		}
		r.calls = append(r.calls, i+1)
		if changes++; call != last {
			r.changes = append(r.changes, changes)
		}
		if slices.Contains([]string{"link", "rename", "remove"}, call.Op) {
			r.names = append(r.names, changes)
		}
		last = call
	}
	for n := range steps.Load() {
		r.steps = append(r.steps, int(n)+1)
	}
	r.left = filesOn(disk)
	return r
}

// attempt is one run of a command.
func (h *history) attempt(c *command, fate int, at uint16, r rehearsal, beside *command) error {
	time.Sleep(time.Minute) // no two rows of a site are fetched at one time
	ctx := context.Background()
	line := c.name
	if c.of != nil {
		line += " of " + c.of.id
	}
	moment := func(of []int) int { return append(of, 1)[int(at)*len(of)>>16] }
	h.asked = map[site]bool{}
	// The history refuses to be derived from fewer scans than it has: a damaged published scan, or one whose command did
	// not end, may make other commands fail.
	refused := c.refuses != nil && c.refuses() || h.any(func(s *scanState) bool {
		hinders := s.publication != "discarded"
		if s == c.of {
			hinders = !c.letsGo
		}
		return s.damaged != "" && hinders || s != c.of && !s.complete && (s.open || s.begunAnew)
	})
	if c.begun != nil {
		c.begun()
	}
	before := h.committed()
	loss := storetest.Nothing
	var failed storetest.Call
	var st store.Store = dirOn(h.disk)
	switch {
	case fate == killed:
		n, effect := moment(r.changes), at%4 > 1
		if at%4 == 3 {
			n = moment(r.names)
		}
		h.disk.CutAt(n, effect)
		line += fmt.Sprintf("; killed at change %d, effect %v", n, effect)
	case fate == power:
		loss = storetest.Unsynced + storetest.Loss(at%6)
		h.disk.CutAt(moment(r.changes), true)
		line += fmt.Sprintf("; power lost at change %d, %v", moment(r.changes), loss)
	case fate == failing:
		refused = true
		n := moment(r.calls) + int(at%3) // the call may be one that reads
		h.disk.Fail = func(i int, c storetest.Call) error {
			if i == n {
				failed = c
				return syscall.EIO
			}
			return nil
		}
		line += fmt.Sprintf("; call %d fails", n)
	case fate == full:
		refused = true
		h.disk.Room = h.size() + int(at)
		line += fmt.Sprintf("; room for %d bytes", at)
	case fate == together && beside != nil:
		refused = refused || beside.of == c.of
		line += fmt.Sprintf("; at step %d of %d: %s", moment(r.steps), len(r.steps), beside.name)
		st = h.beside(beside, moment(r.steps), at, &line)
	}
	h.lines = append(h.lines, line)
	err := c.run(ctx, st)
	died := h.disk.Off()
	h.disk = h.disk.Restart(loss)
	h.disk.Room = 0
	if failed.Op != "" {
		h.lines[len(h.lines)-1] += fmt.Sprintf(": %s of %s", failed.Op, failed.Path)
	}
	if err != nil {
		h.lines[len(h.lines)-1] += fmt.Sprintf("  [%.200v]", err)
	}
	if err := h.look(fate != lives || died); err != nil {
		return err
	}
	if beside != nil && beside.name == "restart" {
		clear(before)
	}
	if err := h.askedOnce(before, died, fate == lives && errors.Is(err, errInterrupted)); err != nil {
		return err
	}
	if _, held := errors.AsType[*commit.HeldError](err); held || died {
		return nil
	}
	if err != nil {
		if !refused {
			return fmt.Errorf("it failed without a reason: %w", err)
		}
		return nil
	}
	if c.done != nil {
		if err := c.done(); err != nil {
			return err
		}
	}
	if failed.Op != "" {
		if err := h.kept(r.left); err != nil {
			return fmt.Errorf("it has succeeded, where %s of %s failed: %w", failed.Op, failed.Path, err)
		}
	}
	if c.publishes && !h.damaged() {
		return h.handed()
	}
	return nil
}

// beside returns a store at whose n-th step another command runs, which may be killed.
func (h *history) beside(c *command, n int, at uint16, line *string) store.Store {
	var steps atomic.Int64
	disk := h.disk
	return &storetest.Faults{Store: dirOn(disk), Fail: func(storetest.Step) error {
		if steps.Add(1) != int64(n) {
			return nil
		}
		if c.begun != nil {
			c.begun()
		}
		other := &storetest.Faults{Store: dirOn(disk)}
		if at&3 == 0 {
			other.CrashAt(1+int(at/4)%50, at&4 > 0)
		}
		// The first command pauses meanwhile: a command that waits for its lock is interrupted.
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		err := c.run(ctx, other)
		*line += fmt.Sprintf(" [%.100v]", err)
		return other.Kill()
	}}
}

// size estimates the disk space of the dataset.
func (h *history) size() (n int) {
	folders := map[string]bool{}
	for name, data := range h.disk.Files() {
		n += len(data) + 256
		for i, r := range name {
			if r == '/' {
				folders[name[:i]] = true
			}
		}
	}
	return n + 256*len(folders)
}

// chunk is the number of bytes of an action in a history: one for its kind, two for its command, one for its fate, and
// two for the moment.
const chunk = 6

// command returns the command of a chunk; nil for none.
func (h *history) command(chunk []byte) *command {
	all := 0
	for _, a := range actions {
		all += a.often
	}
	which := int(chunk[0]) % all
	for _, a := range actions {
		if which -= a.often; which < 0 {
			return a.command(h, chunk[1], chunk[2])
		}
	}
	return nil
}

// play makes a history from its chunks, and runs the oracle after each action and at the end.
func play(t *testing.T, list string, chunks [][]byte) (h *history, err error) {
	t.Helper()
	bubble.Test(t, func(*testing.T) {
		h = &history{list: list, disk: storetest.NewDisk(), scans: map[string]*scanState{}}
		h.disk.NoLinks = len(chunks) > 0 && chunks[0][5]&1 > 0
		for i := 0; err == nil && i < len(chunks); i++ {
			at := chunks[i]
			c := h.command(at)
			if c == nil {
				continue
			}
			fate, beside := fateOf(at[3]), c
			if fate == together && at[5]&1 > 0 && i+1 < len(chunks) {
				i++
				beside = h.command(chunks[i])
			}
			err = h.perform(c, fate, uint16(at[4])<<8|uint16(at[5]), beside)
		}
		if err == nil {
			err = h.end()
		}
	})
	return h, err
}

// end repairs, resumes, merges and publishes all scans, without an accident, and scans once more, in a night. All of
// this succeeds, and leaves no leftovers.
func (h *history) end() error {
	h.lines = append(h.lines, "the end:")
	for _, then := range []struct {
		of      func(*scanState) bool
		command func(s *scanState, a, b byte) *command
	}{
		{func(s *scanState) bool { return s.damaged != "" }, h.repairing},
		{func(s *scanState) bool {
			// a pruning that was killed may have left its tables
			return s.there && s.publication != "discarded" && (s.untouched() || !s.complete)
		}, func(s *scanState, _, b byte) *command {
			return h.scanning(s, map[byte]byte{'n': unpublished}[s.id[0]], b)
		}},
		// which no scan continues
		{func(s *scanState) bool { return s.there && (!s.untouched() || s.publication == "discarded") }, h.compacting},
		{func(s *scanState) bool { return s.there && !s.untouched() && s.complete }, h.counting},
		{func(s *scanState) bool {
			return s.there && s.complete && (s.publication == "pending" || s.publication == "held")
		}, h.releasing},
	} {
		for _, id := range slices.Sorted(maps.Keys(h.scans)) {
			if s := h.scans[id]; then.of(s) {
				if err := h.perform(then.command(s, 0, 1), lives, 0, nil); err != nil {
					return err
				}
			}
		}
	}
	if h.damaged() {
		return errors.New("a scan is damaged still")
	}
	time.Sleep(24 * time.Hour)
	for _, c := range []*command{h.pruning(nightly.Keep{}), h.night(0)} {
		if err := h.perform(c, lives, 0, nil); err != nil {
			return err
		}
	}
	if state, err := index.Check(context.Background(), h.store()); err != nil || state != index.Current {
		return fmt.Errorf("the index is %v, %w", state, err)
	}
	if err := errors.Join(h.handed(), h.told(), h.counted(), h.tidy(),
		h.verified(verify.Damaged, verify.Leftover)); err != nil {
		return err
	}
	return errors.Join(led.Rebuild(context.Background(), h.store(), led.Options{}), h.told())
}

// targets are commands with the fate everywhere: each occurs in the history of one seed of so many, after the actions
// that it needs.
var targets = [][]string{
	{"scan", "compact"}, {"scan", "scan", "prune"}, {"scan", "restart"}, {"scan", "damage", "repair"}, {"scan", "release"},
	{"night"}, {"scan", "again"},
	{"scan", "withdraw"}, {"night", "damage", "withdraw"},
}

// chunksOf returns the actions of a seed.
func chunksOf(seed uint64) (chunks [][]byte) {
	dice := rand.New(rand.NewPCG(seed, 0))
	some := func(n int) {
		for range n {
			chunk := make([]byte, chunk)
			for i := range chunk {
				chunk[i] = byte(dice.Uint32())
			}
			chunks = append(chunks, chunk)
		}
	}
	some(dice.IntN(2))
	target := targets[seed%uint64(len(targets))]
	for i, what := range target {
		some(1)
		at := chunks[len(chunks)-1]
		at[0], at[2], at[3] = first(what), at[2]|1, 0
		if i == len(target)-1 {
			at[1], at[3] = at[1]&^3|1, 255
		}
	}
	some(1 + dice.IntN(3))
	return chunks
}

// first returns the byte of a chunk that stands for an action.
func first(what string) (at byte) {
	for _, a := range actions {
		if a.what == what {
			return at
		}
		at += byte(a.often)
	}
	panic(what)
}

var (
	seed  = flag.Uint64("seed", 1, "of the first history")
	count = flag.Uint64("histories", 0, "number of histories; 0: some")
)

// TestHistories plays histories of consecutive seeds, up to the first that the oracle refuses. It reports that history
// without needless actions, also as the text of a file for testdata/fuzz/FuzzHistories, which keeps it.
func TestHistories(t *testing.T) {
	list, n := writeList(t), *count
	switch {
	case n > 0:
	case testing.Short():
		n = uint64(len(targets)) // one of each kind of step
	default:
		n = 300
	}
	for at := range n {
		chunks := chunksOf(*seed + at)
		h, err := play(t, list, chunks)
		if err == nil {
			continue
		}
		for i := len(chunks) - 1; i >= 0; i-- {
			fewer := slices.Delete(slices.Clone(chunks), i, i+1)
			if less, still := play(t, list, fewer); still != nil {
				chunks, h, err = fewer, less, still
			}
		}
		t.Fatalf("the history of seed %d, in short: []byte(%+q)\n%s\n%v", *seed+at, slices.Concat(chunks...),
			strings.Join(h.lines, "\n"), err)
	}
}

// FuzzHistories plays the kept histories, and those that a fuzzer makes from them.
func FuzzHistories(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		chunks := slices.Collect(slices.Chunk(data[:len(data)/chunk*chunk], chunk))
		if h, err := play(t, writeList(t), chunks[:min(len(chunks), 12)]); err != nil {
			t.Errorf("%s\n%v", strings.Join(h.lines, "\n"), err)
		}
	})
}
