package commit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bulkscan/bulkscan/store"
)

// before lists the publications from which a scan may go to another. A published scan stays published: the history has
// its observations.
var before = map[Publication][]Publication{
	PublicationDone:      {PublicationPending, PublicationHeld, PublicationDiscarded, PublicationEmpty},
	PublicationHeld:      {PublicationPending},
	PublicationDiscarded: {PublicationPending, PublicationHeld},
}

// SetPublication changes the publication of a complete scan, as one step. An incomplete scan can only be discarded. Where the scan has
// it already, nothing changes. What readers open is derived from it, and not yet changed.
func SetPublication(ctx context.Context, st store.Store, scanID string, to Publication) (err error) {
	lock, m, err := LockScan(ctx, st, scanID, DoingPublish)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	switch was := m.Publication; {
	case m.State != Complete && to != PublicationDiscarded:
		return fmt.Errorf("scan %s is not complete, and cannot be %s", scanID, to)
	case was == to || m.Published() && to == PublicationDone:
		return nil
	case m.State == Complete && !slices.Contains(before[to], was):
		return fmt.Errorf("scan %s is %s, and cannot be %s", scanID, was, to)
	}
	m.Publication = to
	return m.Write(ctx, st)
}
