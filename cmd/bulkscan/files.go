package main

import (
	"fmt"
	"os"
)

// files says what the files that the process may hold go to. A scan that finds none left loses more than an exchange: it
// cannot write its tables. So what takes files without end is bounded from the start.
type files struct {
	concurrency int // exchanges, a connection each
	sockets     int // through which names are asked for, however many at a time
	transfers   int // FTP transfers, the second connection of their exchange
}

const (
	// otherFiles are for the list, the parts of each table being written and being closed, the rejects, the lock, the
	// deferred origins, certificates and whatever the system opens on the way: 20 at most were seen. Ten more are for
	// whoever reads the metrics.
	otherFiles = 48
	// Below so many exchanges at once a scan of any list takes for ever.
	leastConcurrency = 16
	mostTransfers    = 64
	mostSockets      = 64
	leastSockets     = 3 // of one name server: one asks, one waits for its last answer, one is for TCP
)

// fileBudget shares out what is left of the limit by the files held already: asked exchanges at once, with their look-ups
// and transfers, as far as it goes. An exchange takes each files, two where its server is in this process too. A limit of
// 0 is none. The error says how high the limit would have to be.
func fileBudget(limit, held uint64, asked, each int) (files, error) {
	b := files{concurrency: asked, sockets: min(4*asked, mostSockets), transfers: min(asked, mostTransfers)}
	wanted := filesWanted(held, asked, each)
	if limit == 0 || limit >= wanted {
		return b, nil
	}
	free := int(limit - min(limit, held+otherFiles)) // less than wanted, so that it fits
	b.sockets = min(b.sockets, max(leastSockets, free/8))
	b.transfers = min(b.transfers, max(1, free/16))
	b.concurrency = min(asked, (free-b.sockets-b.transfers)/each)
	if b.concurrency < min(asked, leastConcurrency) {
		return files{}, fmt.Errorf("the limit of %d open files has room for %d exchanges at once, which is too few to scan; raise it by `ulimit -n %d`",
			limit, max(0, b.concurrency), filesWanted(held, asked, each))
	}
	return b, nil
}

// filesWanted is the limit that has room for all that is asked for.
func filesWanted(held uint64, asked, each int) uint64 {
	return held + otherFiles + uint64(asked)*uint64(each) + uint64(min(4*asked, mostSockets)+min(asked, mostTransfers))
}

// heldFiles counts the files that the process holds now, those that it was started with among them.
func heldFiles() uint64 {
	const standard = 8 // input, output, errors, and what the runtime polls with
	open, err := os.ReadDir("/dev/fd")
	if err != nil {
		return standard
	}
	return max(standard, uint64(len(open)))
}
