//go:build synctests

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// periodLasts is the duration of a mix of faults.
const periodLasts = 30 * time.Second

// faults injects faults into a simulation.
type faults struct {
	w     *simulation
	rnd   *rand.Rand
	false []*kfake.FaultHandle // active fault handles of kfake
	gone  int32                // the removed node; -1: none
}

func newFaults(w *simulation) *faults {
	return &faults{w: w, rnd: rand.New(rand.NewPCG(w.seed, 3)), gone: -1}
}

// some returns a duration from a tenth of most up to most.
func (f *faults) some(most time.Duration) time.Duration {
	return most/10 + time.Duration(f.rnd.Int64N(int64(most)*9/10))
}

func (f *faults) any() *process { return f.w.procs[f.rnd.IntN(len(f.w.procs))] }

// period runs a new mix of faults for periodLasts. One of four periods has no faults.
func (f *faults) period(ctx context.Context) {
	end := time.Now().Add(periodLasts)
	if f.rnd.IntN(4) > 0 {
		kinds := []func(){f.kill, f.killAtPoint, f.stop, f.stopAtPoint, f.cut, f.reset, f.slow, f.answerFalsely, f.move, f.loseNode, f.setClock, f.fillDisk, f.storm, f.killAll}
		f.rnd.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for _, do := range kinds[:1+f.rnd.IntN(4)] {
			if !f.sleep(ctx, f.some(periodLasts/4)) {
				return
			}
			do()
		}
	}
	f.sleep(ctx, time.Until(end))
	f.calm()
}

func (f *faults) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// calm ends the faults that don't end on their own.
func (f *faults) calm() {
	for _, h := range f.false {
		h.Remove()
	}
	f.false = nil
	f.returnNode()
	for _, p := range f.w.procs {
		if n := p.net(); n != nil {
			n.slow(0)
		}
		p.mu.Lock()
		p.full = false
		p.mu.Unlock()
	}
}

// end ends all faults except those of services.
func (f *faults) end() {
	f.calm()
	for _, p := range f.w.procs {
		p.mend()
	}
	f.w.note("faults", "all over")
}

// unsynced returns the percentage of unsynced data that survives a crash.
func (f *faults) unsynced() int { return []int{0, 50, 100}[f.rnd.IntN(3)] }

func (f *faults) down() time.Duration { return f.some(12 * time.Second) }

func (f *faults) kill() { f.killProcess(f.any(), "") }

func (f *faults) killProcess(p *process, where string) {
	lost := f.rnd.IntN(4) == 0
	f.w.note("faults", "kill %s%s; its disk is lost: %v", p, where, lost)
	p.kill(f.unsynced(), f.down())
	if lost {
		p.loseDisk()
	}
	f.w.outcome.kills++
}

func (f *faults) killAll() {
	for _, p := range f.w.procs {
		f.killProcess(p, " with all others")
	}
}

func (f *faults) killAtPoint() {
	p := f.any()
	at := p.role.points[f.rnd.IntN(len(p.role.points))]
	unsynced, down := f.unsynced(), f.down()
	p.trap(at, f.rnd.IntN(20), func() {
		f.w.note("faults", "kill %s, %s", p, at)
		p.kill(unsynced, down)
	})
	f.w.outcome.kills++
}

func (f *faults) stop() {
	p, d := f.any(), f.some(20*time.Second)
	f.w.note("faults", "stop %s for %s", p, d)
	p.stop(d)
	f.disturb(p)
	f.w.outcome.stops++
}

func (f *faults) stopAtPoint() {
	p, d := f.any(), f.some(20*time.Second)
	at := p.role.points[f.rnd.IntN(len(p.role.points))]
	p.trap(at, f.rnd.IntN(20), func() {
		f.w.note("faults", "stop %s, %s, for %s", p, at, d)
		p.stop(d)
	})
	f.disturb(p)
	f.w.outcome.stops++
}

// disturb records that an agent may now deliver a reply late that it sent in time.
func (f *faults) disturb(p *process) {
	f.w.agentsDisturbed = f.w.agentsDisturbed || p.role.name == agentsRole.name
}

func (f *faults) cut() {
	p, d := f.any(), f.some(15*time.Second)
	deaf, mute := f.rnd.IntN(2) == 0, f.rnd.IntN(2) == 0
	n := p.net()
	if n == nil {
		return
	}
	f.w.note("faults", "cut %s for %s; hears nothing %v, says nothing %v", p, d, deaf || !mute, mute)
	n.cut(deaf || !mute, mute)
	time.AfterFunc(d, n.heal)
	f.w.outcome.cuts++
}

func (f *faults) reset() {
	for _, p := range f.w.procs {
		if n := p.net(); n != nil && f.rnd.IntN(2) == 0 {
			f.w.note("faults", "break the connections of %s", p)
			n.reset()
			f.w.outcome.cuts++
		}
	}
}

func (f *faults) slow() {
	p, most := f.any(), f.some(800*time.Millisecond)
	if n := p.net(); n != nil {
		f.w.note("faults", "%s writes with up to %s of delay", p, most)
		n.slow(most)
		f.disturb(p)
	}
}

// answerFalsely makes the brokers return errors for some requests. They may return a timeout for a request that they
// have executed.
func (f *faults) answerFalsely() {
	keys := []kmsg.Key{kmsg.Produce, kmsg.EndTxn, kmsg.TxnOffsetCommit, kmsg.OffsetCommit, kmsg.AddPartitionsToTxn, kmsg.InitProducerID, kmsg.Fetch, kmsg.ListOffsets}
	errs := []*kerr.Error{kerr.RequestTimedOut, kerr.RequestTimedOut, kerr.NotLeaderForPartition, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator}
	for range 1 + f.rnd.IntN(4) {
		key, err, n := keys[f.rnd.IntN(len(keys))], errs[f.rnd.IntN(len(errs))], 1+f.rnd.IntN(6)
		f.w.note("faults", "%d x %s is answered with %s", n, key.Name(), err.Message)
		f.false = append(f.false, f.w.broker.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: err, Count: n}))
		f.w.outcome.errors += n
	}
}

func (f *faults) move() {
	if f.rnd.IntN(2) == 0 {
		f.w.note("faults", "the leaders move")
		f.w.broker.Fake.ShufflePartitionLeaders()
	} else {
		f.w.note("faults", "the coordinators move")
		f.w.broker.Fake.RehashCoordinators()
	}
	f.w.outcome.moves++
}

func (f *faults) loseNode() {
	f.returnNode()
	node := int32(f.rnd.IntN(brokers))
	if err := f.w.broker.Fake.RemoveNode(node); err != nil {
		f.w.t.Errorf("remove node %d: %v", node, err)
		return
	}
	f.w.wires.tear(firstPort + int(node))
	f.gone = node
	f.w.note("faults", "node %d is gone", node)
	f.w.outcome.moves++
}

func (f *faults) returnNode() {
	if f.gone < 0 {
		return
	}
	if _, _, err := f.w.broker.Fake.AddNode(f.gone, firstPort+int(f.gone)); err != nil {
		f.w.t.Errorf("add node %d: %v", f.gone, err)
	}
	f.w.note("faults", "node %d is back", f.gone)
	f.gone = -1
}

// setClock restarts a process on a machine whose clock is wrong.
func (f *faults) setClock() {
	p := f.any()
	skew := []time.Duration{time.Hour, -time.Hour, 10 * time.Second, -10 * time.Second, 500 * time.Millisecond}[f.rnd.IntN(5)]
	f.w.note("faults", "the clock of %s is off by %s", p, skew)
	p.setClock(skew)
	f.disturb(p)
	time.AfterFunc(f.some(20*time.Second), func() { p.setClock(0) })
	f.killProcess(p, " to start it with a wrong clock")
	f.w.outcome.skew++
}

func (f *faults) fillDisk() {
	p := f.any()
	f.w.note("faults", "the disk of %s is full", p)
	p.mu.Lock()
	p.full = true
	p.mu.Unlock()
	f.w.outcome.full++
}

// storm lets members join and leave the schedulers' group every few seconds.
func (f *faults) storm() {
	r := schedulerRole
	p := &process{w: f.w, name: fmt.Sprintf("storm%d", f.rnd.IntN(1000)), role: r, rnd: rand.New(rand.NewPCG(f.w.seed, f.rnd.Uint64())), disk: newDisk()}
	f.w.note("faults", "%s comes and goes", p)
	var stays [6]time.Duration
	for i := range stays {
		stays[i] = f.some(3 * time.Second)
	}
	f.w.storms.Go(func() {
		for _, stay := range stays {
			ctx, leave := context.WithTimeout(context.Background(), stay)
			l := p.begin(ctx)
			l.live()
			leave()
		}
	})
}
