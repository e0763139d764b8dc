package projections_test

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// TestLastEventComesAgain checks that a view continues if the log has its last event at its offset, however it was
// opened. It refuses a log with another event there, or none.
func TestLastEventComesAgain(t *testing.T) {
	type lastEventChecker interface {
		applier
		Next() int64
		ExpectLastEvent() int64
		Save()
		Close()
	}
	const seed, known = 6, 400
	rs := newHistory(seed).records(600)
	other := newHistory(seed + 1)
	other.at = other.at.Add(1e9)
	others := other.records(600)
	for i := range others {
		others[i].Offset = rs[i].Offset
	}
	without := append(append([]record(nil), rs[:known-1]...), rs[known:]...)
	for view, open1 := range map[string]func(*projections.Store) (lastEventChecker, error){
		projections.ViewTasks:     func(s *projections.Store) (lastEventChecker, error) { return s.Tasks(testPartition) },
		projections.ViewDeadlines: func(s *projections.Store) (lastEventChecker, error) { return s.Deadlines(testPartition) },
		projections.ViewTimelines: func(s *projections.Store) (lastEventChecker, error) { return s.Timelines(testPartition) },
	} {
		t.Run(view, func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			s := open(t, fs, view)
			v, err := open1(s)
			if err != nil {
				t.Fatal(err)
			}
			if from := v.ExpectLastEvent(); from != 0 {
				t.Errorf("an empty view is read from %d", from)
			}
			apply(t, v, rs[:known])
			v.Close()
			closeStore(t, s)
			next := rs[known-1].Offset + 1
			reopened := func(log []record, from int64) (lastEventChecker, error) {
				s := open(t, fs.CrashClone(vfs.CrashCloneCfg{}), view)
				t.Cleanup(func() { closeStore(t, s) })
				v, err := open1(s)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(v.Close)
				if got := v.ExpectLastEvent(); got != next-1 {
					t.Errorf("is read from %d, want %d", got, next-1)
				}
				for i := range log {
					if r := log[i]; r.Offset >= from {
						if err := v.Apply(&r); err != nil {
							return v, err
						}
					}
				}
				return v, nil
			}
			for _, from := range []int64{0, next - 1} {
				if v, err := reopened(rs, from); err != nil || v.Next() != rs[len(rs)-1].Offset+1 {
					t.Errorf("from %d on in its own log: %v, at %d", from, err, v.Next())
				}
				for name, c := range map[string]struct {
					log   []record
					final bool
				}{"another": {others, true}, "none": {without, view == projections.ViewTasks}} {
					v, err := reopened(c.log, from)
					var e *projections.LogMismatchError
					if !errors.As(err, &e) || !errors.Is(err, projections.ErrForeign) || e.Permanent() != c.final || e.Offset != next-1 || v.Next() != next {
						t.Errorf("from %d on in a log with %s there: %v, at %d", from, name, err, v.Next())
					}
					if r := rs[known]; v.Apply(&r) == nil {
						t.Errorf("it goes on in a log with %s there", name)
					}
				}
			}
		})
	}
}

// TestLastEventMustCome checks that CheckReadTo returns an error if the log was read past the last event without it.
// After a Wipe the view is rebuilt from the start of the log.
func TestLastEventMustCome(t *testing.T) {
	type wiped interface {
		applier
		Next() int64
		ExpectLastEvent() int64
		CheckReadTo(int64) error
		Wipe()
		Save()
		Digest() string
		Close()
	}
	rs := newHistory(11).records(300)
	for view, open1 := range map[string]func(*projections.Store) (wiped, error){
		projections.ViewTasks:     func(s *projections.Store) (wiped, error) { return s.Tasks(testPartition) },
		projections.ViewDeadlines: func(s *projections.Store) (wiped, error) { return s.Deadlines(testPartition) },
		projections.ViewTimelines: func(s *projections.Store) (wiped, error) { return s.Timelines(testPartition) },
	} {
		t.Run(view, func(t *testing.T) {
			digests := map[string]bool{}
			for _, before := range []int{0, 200} {
				s := open(t, vfs.NewMem(), view)
				v, err := open1(s)
				if err != nil {
					t.Fatal(err)
				}
				apply(t, v, rs[:before])
				if before > 0 {
					v.ExpectLastEvent()
					if err := v.CheckReadTo(v.Next() - 1); err != nil {
						t.Errorf("read to its last event: %v", err)
					}
					var e *projections.LogMismatchError
					if err := v.CheckReadTo(v.Next()); !errors.As(err, &e) || !e.Ahead() || e.Offset != v.Next()-1 {
						t.Errorf("read past its last event, which didn't come: %v", err)
					}
					v.Save()
					if v.Wipe(); v.Next() != 0 {
						t.Fatalf("wiped it is at %d", v.Next())
					}
				}
				apply(t, v, rs)
				if err := v.CheckReadTo(v.Next() + 1); err != nil {
					t.Errorf("read from the start: %v", err)
				}
				digests[v.Digest()] = true
				v.Close()
				closeStore(t, s)
			}
			if len(digests) != 1 {
				t.Error("wiped, it comes to something else than one that was empty")
			}
		})
	}
}

// TestLastEventOfAnOlderBuild checks that the log isn't compared if the instant of the last event is unknown, as in
// timelines of older builds and after unreadable records.
func TestLastEventOfAnOlderBuild(t *testing.T) {
	rs := newHistory(3).records(100)
	rs[99].Value = []byte(`{"at":`)
	a := &audited{t: t, fs: vfs.NewCrashableMem()}
	a.open()
	apply(t, a.v, rs)
	if from := a.v.ExpectLastEvent(); from != a.v.Next() {
		t.Errorf("is read from %d, want %d", from, a.v.Next())
	}
	a.v.Close()
	closeStore(t, a.s)
	for _, view := range []string{projections.ViewTasks, projections.ViewDeadlines} {
		s := open(t, vfs.NewMem(), view)
		var v interface {
			applier
			ExpectLastEvent() int64
			Close()
		}
		var err error
		if v, err = s.Tasks(testPartition); view == projections.ViewDeadlines {
			v, err = s.Deadlines(testPartition)
		}
		if err != nil {
			t.Fatal(err)
		}
		apply(t, v, rs)
		v.ExpectLastEvent()
		for _, r := range []events.Record{rs[99], newHistory(3).records(101)[100]} {
			if err := v.Apply(&r); err != nil {
				t.Errorf("%s: %v", view, err)
			}
		}
		v.Close()
		closeStore(t, s)
	}
}
