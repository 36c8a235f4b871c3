// Package limits answers one question: what does the machine let this process use? It shares out the files that the
// process may hold open, and tells how much memory it has held.
package limits

import (
	"fmt"
	"os"
)

// Files divides the files that the process may hold among their uses. A scan without a free file loses more than an
// exchange: it cannot write its tables. So each use that would grow is bounded from the start.
type Files struct {
	Concurrency int // exchanges, a connection each
	Silent      int // exchanges beside them, of hosts that are silent
	Sockets     int // sockets for DNS, however many names are looked up at a time
	Transfers   int // FTP transfers, the second connection of their exchange
}

const (
	// otherFiles are for the list, the parts of each table being written and being closed, the rejects, the lock, the
	// spilled origins, certificates and whatever the system opens on the way: 20 at most were seen. Ten more are for
	// readers of the metrics.
	otherFiles = 48
	// With fewer exchanges at once, a scan of any list takes too long.
	leastConcurrency = 16
	// If there are too few files for all, one exchange in silentPart is a silent one.
	silentPart    = 5
	mostTransfers = 64
	mostSockets   = 64
)

// SocketsEach is how many sockets one name server takes: one sends questions, one waits for its last answer, one is for
// TCP.
const SocketsEach = 3

// ShareFiles divides the files of the limit that are not held already. Wanted are `asked` exchanges at once, with their
// look-ups and transfers, and `silent` exchanges beside them; there may be fewer. An exchange takes `each` files: two
// if its server is in this process, too. A limit of 0 means none. The error says how high the limit would have to be.
func ShareFiles(limit, held uint64, asked, silent, each int) (Files, error) {
	b := Files{Concurrency: asked, Silent: silent, Sockets: min(4*asked, mostSockets),
		Transfers: min(asked, mostTransfers)}
	wanted := FilesWanted(held, asked, silent, each)
	if limit == 0 || limit >= wanted {
		return b, nil
	}
	free := int(limit - min(limit, held+otherFiles)) // less than wanted, so that it fits
	b.Sockets = min(b.Sockets, max(SocketsEach, free/8))
	b.Transfers = min(b.Transfers, max(1, free/16))
	exchanges := max(0, (free-b.Sockets-b.Transfers)/each)
	b.Silent = min(silent, max(exchanges-asked, (exchanges+silentPart-1)/silentPart))
	b.Concurrency = min(asked, exchanges-b.Silent)
	if b.Concurrency < min(asked, leastConcurrency) {
		return Files{},
			fmt.Errorf(
				"the limit of %d open files has room for %d exchanges at once, which is too few to scan; raise it by `ulimit -n %d`",
				limit, b.Concurrency, wanted)
	}
	return b, nil
}

// FilesWanted is the limit with room for so many exchanges.
func FilesWanted(held uint64, asked, silent, each int) uint64 {
	return held + otherFiles + uint64(asked+silent)*uint64(each) + uint64(min(4*asked, mostSockets)+
		min(asked, mostTransfers))
}

// HeldFiles counts the files that the process holds now, including those that it was started with.
func HeldFiles() uint64 {
	const standard = 8 // input, output, errors, and what the runtime polls with
	open, err := os.ReadDir("/dev/fd")
	if err != nil {
		return standard
	}
	return max(standard, uint64(len(open)))
}
