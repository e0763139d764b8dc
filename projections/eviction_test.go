package projections_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// keeper is a store with the operations of an owner.
type keeper struct {
	t     *testing.T
	o     projections.Options
	fs    *vfs.MemFS
	s     *projections.Store
	v     *projections.Tasks
	topic topic // of snapshots
}

func (k *keeper) open() {
	k.t.Helper()
	o := k.o
	o.FS = k.fs
	s, err := projections.Open("data/tasks", identity(projections.ViewTasks), o)
	if err != nil {
		k.t.Fatal(err)
	}
	k.s, k.v = s, tasksOf(k.t, s)
}

// commit writes events, and the records of the snapshot that are due.
func (k *keeper) commit(rs []events.Record, rolledBack bool) {
	k.t.Helper()
	size := 0
	for i := range rs {
		size += len(rs[i].Value)
	}
	written, err := k.v.Snapshot("test", size)
	if err != nil {
		k.t.Fatal(err)
	}
	if rolledBack {
		return
	}
	k.topic = append(k.topic, written...)
	k.v.SnapshotWritten()
	k.v.BeginLookups()
	live(k.t, k.v, rs, len(rs))
	k.v.EndLookups()
}

// restart ends the process, by a close or by a crash of the machine, and starts again from the store's state or from
// the snapshot.
func (k *keeper) restart(crash, snapshot bool, log []events.Record) {
	k.t.Helper()
	fs := k.fs
	if crash {
		if err := k.s.Flush(); err != nil { // otherwise it is random how much was flushed
			k.t.Fatal(err)
		}
		fs = k.fs.CrashClone(vfs.CrashCloneCfg{})
	}
	k.v.Close()
	closeStore(k.t, k.s)
	k.fs = fs
	k.open()
	if snapshot && k.topic.base(k.t) != nil {
		fromSnapshot(k.t, k.v, k.topic, log)
	} else {
		fromDisk(k.t, k.v, k.topic, log)
	}
}

// all returns the results of all queries of a view.
func (k *keeper) all(ids []string) (said []string) {
	k.t.Helper()
	say := func(what ...any) { said = append(said, fmt.Sprint(what...)) }
	for _, id := range ids {
		task := k.v.Task(id)
		say(id, " ", k.v.Knows(id))
		if task != nil {
			say(string(task.Encode()))
		}
	}
	say("open ", k.v.Open(), ", next ", k.v.Next(), ", changed ", k.v.Changed(), ": ", k.v.ChangedBytes())
	var open []string
	k.v.EachOpen(func(task *events.Task) { open = append(open, string(task.Encode())) })
	slices.Sort(open)
	say(open)
	if why := k.v.Check(); why != "" {
		k.t.Fatal(why)
	}
	return said
}

// TestEvictionDoesNotChangeResults compares a store that keeps hardly any task in memory with one that keeps all. Over
// random histories with rolled back commits, saves, flushes, restarts, crashes and snapshots, both give the same
// results and write the same snapshots.
func TestEvictionDoesNotChangeResults(t *testing.T) {
	t.Parallel()
	cold := 0
	for seed := range seeds(t, 8) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		h := newHistory(seed)
		rs := h.records(1500)
		var ids []string
		for id := range h.tasks {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		ids = append(ids, "nobody")
		chunk := 200 + rnd.IntN(20_000)
		few, all := &keeper{t: t, o: tiny(chunk), fs: vfs.NewCrashableMem()}, &keeper{t: t, o: tiny(chunk), fs: vfs.NewCrashableMem()}
		few.o.HotBytes, all.o.HotBytes = 1+rnd.IntN(4000), 1<<30
		both := []*keeper{few, all}
		for _, k := range both {
			k.open()
			fromDisk(t, k.v, nil, nil)
		}
		for done := 0; done < len(rs); {
			n := min(1+rnd.IntN(8), len(rs)-done)
			rolledBack, what := rnd.IntN(5) == 0, rnd.IntN(60)
			for _, k := range both {
				k.commit(rs[done:done+n], rolledBack)
			}
			if !rolledBack {
				done += n
			}
			for _, k := range both {
				k.act(what, rs[:done])
			}
			cold += few.v.Open() - few.v.Hot()
			if rnd.IntN(20) > 0 && done < len(rs) {
				continue
			}
			got, want := few.all(ids), all.all(ids)
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("seed %d at %d: with few in memory\n%s\nwith all\n%s", seed, done, got[i], want[i])
				}
			}
			same := func(a, b events.Record) bool { return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) }
			if !slices.EqualFunc(few.topic, all.topic, same) {
				t.Fatalf("seed %d at %d: other snapshots: with few in memory %d records, with all %d", seed, done, len(few.topic), len(all.topic))
			}
		}
		if got, want := few.v.Digest(), rebuilt(t, rs); got != want {
			t.Fatalf("seed %d: digest %s, rebuilt %s", seed, got, want)
		}
		for _, k := range both {
			k.v.Save()
			k.checkHeld(k == all)
			k.v.Close()
			if held, _, err := k.s.MemoryUse(); err != nil || held.Decoded != 0 {
				t.Errorf("%d bytes are kept decoded of no view, %v", held.Decoded, err)
			}
			closeStore(t, k.s)
		}
	}
	if cold < 30_000*int(seeds(t, 8))/8 {
		t.Errorf("%d cold tasks, counted after each commit, prove little", cold)
	}
}

// checkHeld compares the store's MemoryUse with its bounds.
func (k *keeper) checkHeld(all bool) {
	k.t.Helper()
	if err := k.s.WaitCompacted(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
	held, most, err := k.s.MemoryUse()
	if err != nil || held.Decoded > most.Decoded || held.Cache > most.Cache || most.Decoded != int64(k.o.HotBytes) {
		k.t.Errorf("held %+v of at most %+v, %v", held, most, err)
	}
	if all && (k.v.Open() == 0 || held.Decoded == 0) {
		k.t.Errorf("%d open tasks are all kept decoded, in %d bytes", k.v.Open(), held.Decoded)
	}
}

// act performs some other operation of an owner at random.
func (k *keeper) act(what int, log []events.Record) {
	k.t.Helper()
	switch {
	case what < 4:
		k.restart(what < 2, what%2 == 0, log)
	case what < 20:
		k.v.Save()
	case what < 23:
		k.v.Save()
		if err := k.s.Flush(); err != nil {
			k.t.Fatal(err)
		}
	}
}
