package projections_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// followed is an index that follows a random history, with Saves, restarts and crashes at random points.
type followed struct {
	*audited
	seed uint64
	rnd  *rand.Rand
	h    *history
	rs   []events.Record // all so far
}

// follow returns an index that has read nothing. stream gives each test its own random numbers.
func follow(t *testing.T, seed, stream uint64) *followed {
	t.Helper()
	f := &followed{seed: seed, rnd: rand.New(rand.NewPCG(seed, stream)), h: newHistory(seed)}
	f.h.vary = true
	f.audited = &audited{t: t, fs: vfs.NewCrashableMem(), o: projections.Options{HotBytes: 1 + f.rnd.IntN(20_000)}}
	f.open()
	return f
}

// String says which history it is, and how far it was read.
func (f *followed) String() string { return fmt.Sprintf("seed %d, %d events", f.seed, len(f.rs)) }

// read reads some records, n times, with up to some time between them. After one in oneIn of these, compare checks the
// index.
func (f *followed) read(n, oneIn int, pause func() time.Duration, compare func()) {
	f.t.Helper()
	for range n {
		some := f.h.records(1 + f.rnd.IntN(60))
		f.h.at = f.h.at.Add(pause())
		f.rs = append(f.rs, some...)
		apply(f.t, f.v, some)
		f.act(30 + f.rnd.IntN(8))
		apply(f.t, f.v, f.rs) // replay what was lost
		if f.rnd.IntN(oneIn) == 0 {
			f.save()
			compare()
		}
	}
}

// pauseOfAnyLength returns up to n seconds, minutes or hours.
func (f *followed) pauseOfAnyLength(n int) time.Duration {
	return time.Duration(f.rnd.IntN(n)) * []time.Duration{time.Second, time.Minute, time.Hour}[f.rnd.IntN(3)]
}

// latest returns the time of the last event.
func (f *followed) latest() time.Time {
	last := &f.rs[len(f.rs)-1]
	if e, err := events.DecodeEvent(last); err == nil {
		return e.At
	}
	return last.Time
}

// end compares the index with one that is rebuilt from the log, and closes both.
func (f *followed) end() {
	f.t.Helper()
	b := &audited{t: f.t, fs: vfs.NewCrashableMem()}
	b.open()
	apply(f.t, b.v, f.rs)
	if got, want := f.v.Digest(), b.v.Digest(); got != want {
		f.t.Errorf("%s: digest %s, of a rebuild %s", f, got, want)
	}
	for _, x := range []*audited{f.audited, b} {
		x.v.Close()
		closeStore(f.t, x.s)
	}
}
