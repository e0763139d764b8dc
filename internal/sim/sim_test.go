//go:build synctests

package sim

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/tally"
)

// seedsWithin bounds the number of seeds within -for. It is more than can run.
const seedsWithin = 1 << 20

// TestSeeds runs seeds, each in a separate simulation.
func TestSeeds(t *testing.T) {
	begin, n := time.Now(), *seeds
	if *within > 0 {
		n = seedsWithin
	}
	var next atomic.Uint64
	next.Store(*seed)
	var all total
	var workers sync.WaitGroup
	for range min(*parallel, n) {
		workers.Go(func() {
			for {
				s := next.Add(1) - 1
				if s >= *seed+uint64(n) || *within > 0 && time.Since(begin) > *within {
					return
				}
				t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { all.add(runSeed(t, s)) })
				})
			}
		})
	}
	workers.Wait()
	all.say(t)
}

// total sums the outcomes of the seeds.
type total struct {
	mu sync.Mutex
	outcome
	seeds int
}

// outcome counts what one seed did.
type outcome struct {
	simulated                                            time.Duration
	tasks, events, kills, stops, cuts, moves, full, skew int
	errors, unreadable, controls, snapshots, taken       int

	signals, kept, caught, refunds int // kept: signals that tasks received
	forgot, again                  int // events that forgot ids, and ids that were used again
	ids                            map[string]bool
	children, withdrawn, items     int // children and items that were submitted, children withdrawn
	checks                         checkCounts
}

func (a *total) add(o outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seeds++
	a.simulated += o.simulated
	a.tasks += o.tasks
	a.events += o.events
	a.kills += o.kills
	a.stops += o.stops
	a.cuts += o.cuts
	a.moves += o.moves
	a.full += o.full
	a.skew += o.skew
	a.errors += o.errors
	a.unreadable += o.unreadable
	a.controls += o.controls
	a.snapshots += o.snapshots
	a.taken += o.taken
	a.signals += o.signals
	a.kept += o.kept
	a.caught += o.caught
	a.refunds += o.refunds
	a.forgot += o.forgot
	a.again += o.again
	a.children += o.children
	a.withdrawn += o.withdrawn
	a.items += o.items
	a.checks.add(o.checks)
}

func (a *total) say(t *testing.T) {
	t.Helper()
	tally.Say(t, "%d seeds, %.1f simulated hours: %d tasks, %d events; %d kills, %d stops, %d cuts, %d moves of leaders and coordinators, %d false answers, %d full disks, %d clock steps, %d unreadable records, %d commands; %d snapshots, %d restores from one; %d signals, %d of them received, %d errors caught, %d refunds; ids forgotten %d times, and %d used again; %d children and %d items, %d of them withdrawn; %s",
		a.seeds, a.simulated.Hours(), a.tasks, a.events, a.kills, a.stops, a.cuts, a.moves, a.errors, a.full, a.skew, a.unreadable, a.controls, a.snapshots, a.taken,
		a.signals, a.kept, a.caught, a.refunds, a.forgot, a.again, a.children, a.items, a.withdrawn, a.checks)
}

// count counts an event of the log.
func (o *outcome) count(r *events.Record) {
	switch what, _ := r.Header(events.HeaderType); {
	case what == (*events.TaskSignalled)(nil).Type():
		o.kept++
	case what == (&events.PartitionForgot{}).Type():
		o.forgot++
	case what == (&events.TaskReceived{}).Type():
		if o.ids == nil {
			o.ids = map[string]bool{}
		}
		if id := string(r.Key); o.ids[id] {
			o.again++
		} else {
			o.ids[id] = true
		}
		if bytes.Contains(r.Value, []byte(`"parent":{`)) {
			if o.children++; bytes.Contains(r.Value, []byte(`"item":`)) {
				o.children--
				o.items++
			}
		}
	case what == (*events.TaskWithdrawn)(nil).Type():
		o.withdrawn++
	case what == (*events.RunCaught)(nil).Type():
		o.caught++
	case what == (*events.TaskUndoing)(nil).Type() && bytes.Contains(r.Value, []byte(`"processed":`)):
		o.refunds++
	}
}
