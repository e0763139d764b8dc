package instance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

const auditSaveEvery = time.Second

// auditor keeps the timelines of the partitions that its follower owns. start
// is called from the follower's goroutine, the rest from the loop's.
type auditor struct {
	store *projections.Store
	mu    sync.Mutex
	views map[int32]*projections.Timelines
}

// start says where to begin reading a partition that came.
func (a *auditor) start(_ context.Context, _ string, p int32) (int64, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.views[p]; old != nil {
		if err := old.Save(); err != nil {
			return 0, false, fmt.Errorf("%w: %w", errStore, err)
		}
		old.Close()
	}
	v, err := a.store.Timelines(p)
	if err != nil {
		return 0, false, fmt.Errorf("%w: %w", errStore, err)
	}
	a.views[p] = v
	return v.Next(), true, nil
}

func (a *auditor) apply(assigned map[int32]uint64, records []events.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, v := range a.views {
		if _, ok := assigned[p]; !ok {
			if err := v.Save(); err != nil {
				return fmt.Errorf("%w: %w", errStore, err)
			}
			v.Close()
			delete(a.views, p)
		}
	}
	for i := range records {
		v := a.views[records[i].Partition]
		if v == nil {
			continue // it went; its next owner reads on from what was saved
		}
		if err := v.Apply(&records[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *auditor) save() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range a.views {
		if err := v.Save(); err != nil {
			return err
		}
	}
	return nil
}

func (a *auditor) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range a.views {
		if v.Save() == nil {
			v.Close()
		} else {
			v.Discard() // the store says why, to whoever closes it
		}
	}
}
