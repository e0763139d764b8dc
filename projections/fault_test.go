package projections_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/projections"
)

// writes calls fn before every change of a file or directory.
func writes(fn func(errorfs.Op) error) errorfs.InjectorFunc {
	return func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpLock && op.Kind != errorfs.OpFileClose {
			return fn(op)
		}
		return nil
	}
}

// process runs a process until it ends by itself, or by a failing disk. It returns the error that ended it. In between
// nothing of the failed process runs on that waits for the failed call.
func process(t *testing.T, run func(fatal func(error)) error) error {
	t.Helper()
	ended := make(chan error, 1)
	end := func(err error) {
		select {
		case ended <- err:
		default: // it has ended before
		}
	}
	go func() {
		defer func() {
			if p := recover(); p != nil {
				end(fmt.Errorf("panic: %v", p))
			}
		}()
		end(run(func(err error) {
			end(err)
			select {}
		}))
	}()
	select {
	case err := <-ended:
		return err
	case <-time.After(suite.Patience):
		t.Fatal("the process neither ends nor fails")
		return nil
	}
}

// checkDiskError checks that an error names the directory, the cause, and what to do.
func checkDiskError(t *testing.T, err, cause error, says string) {
	t.Helper()
	var disk *projections.DiskError
	if !errors.As(err, &disk) || !errors.Is(err, cause) {
		t.Fatalf("it ended with %v, want a DiskError of %v", err, cause)
	}
	for _, says := range []string{"data", "so the process ends", "Nothing is lost", says} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%v: doesn't say %q", err, says)
		}
	}
}

// fill applies, saves and flushes. It sets the flushed offset.
func fill(fs vfs.FS, o projections.Options, rs []record, flushed *atomic.Int64) error {
	o.FS = fs
	s, err := projections.Open("data/tasks", identity(projections.ViewTasks), o)
	if err != nil {
		return err
	}
	v, err := s.Tasks(testPartition)
	for i := range rs {
		if err != nil {
			break
		}
		if err = v.Apply(&rs[i]); err == nil && i%10 == 0 {
			v.Save()
		}
		if err == nil && i%100 == 0 {
			err = s.Flush()
			_, next := v.FlushedState()
			flushed.Store(next)
		}
	}
	if err != nil {
		return err
	}
	v.Close()
	return s.Close()
}

// TestDiskErrorEndsTheProcess fails every change of the disk, or every write to a file, from the nth on. The process ends with one error that says
// what to do. What was flushed is on the disk, also after a crash of the machine, and the next process goes on from
// there.
func TestDiskErrorEndsTheProcess(t *testing.T) {
	t.Parallel()
	h := newHistory(9)
	rs := h.records(900)
	failures := 0
	for n := int64(0); n < 400; n += 1 + n/8 {
		mem, cause, says := vfs.NewCrashableMem(), error(syscall.ENOSPC), "Free space"
		some := n%2 == 1 // only what is written to files
		if some {
			cause, says = syscall.EIO, "replace the disk"
		}
		var count, flushed atomic.Int64
		fs := errorfs.Wrap(mem, writes(func(op errorfs.Op) error {
			if some && op.Kind != errorfs.OpFileWrite || count.Add(1) <= n {
				return nil
			}
			return &os.PathError{Op: "write", Path: op.Path, Err: cause}
		}))
		var after *vfs.MemFS
		var crash sync.Once
		err := process(t, func(fatal func(error)) error {
			o := projections.Options{MemtableBytes: projections.MinMemtableBytes}.Rewriting()
			o.Fatal = func(err error) {
				crash.Do(func() {
					after = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(n%3) * 50, RNG: rand.New(rand.NewPCG(uint64(n), 6))})
				})
				fatal(err)
			}
			return fill(fs, o, rs, &flushed)
		})
		if count.Load() <= n {
			if err != nil {
				t.Fatalf("n=%d: %v", n, err)
			}
			continue
		}
		failures++
		checkDiskError(t, err, cause, says)
		if after == nil { // Open returned the error
			after = mem.CrashClone(vfs.CrashCloneCfg{})
		}
		s := open(t, after, projections.ViewTasks)
		v := tasksOf(t, s)
		if v.Next() < flushed.Load() {
			t.Fatalf("n=%d: opens at %d, %d was flushed", n, v.Next(), flushed.Load())
		}
		model := prefix(9, v.Next(), len(rs))
		same(t, v, model.tasks, model.state)
		apply(t, v, rs)
		same(t, v, h.tasks, h.state)
		closeStore(t, s)
	}
	if failures < 20 {
		t.Errorf("only %d failures: it proves little", failures)
	}
}

// TestDiskErrorAtOpen opens a store that must flush on a full disk. Pebble alone would retry the flush forever.
func TestDiskErrorAtOpen(t *testing.T) {
	rs := newHistory(9).records(300)
	for n := int64(0); n < 20; n++ {
		mem := vfs.NewCrashableMem()
		var flushed, count atomic.Int64
		if err := fill(mem, projections.Options{}, rs, &flushed); err != nil {
			t.Fatal(err)
		}
		fs := errorfs.Wrap(mem, writes(func(op errorfs.Op) error {
			if count.Add(1) > n {
				return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
			}
			return nil
		}))
		err := process(t, func(fatal func(error)) error {
			s, err := projections.Open("data/tasks", identity(projections.ViewTasks), projections.Options{FS: fs, Fatal: fatal})
			if err == nil {
				err = s.Close()
			}
			return err
		})
		if count.Load() > n {
			checkDiskError(t, err, syscall.ENOSPC, "Free space")
		}
		s := open(t, mem.CrashClone(vfs.CrashCloneCfg{}), projections.ViewTasks)
		if v := tasksOf(t, s); v.Next() != rs[len(rs)-1].Offset+1 {
			t.Errorf("n=%d: with room again it is at %d", n, v.Next())
		}
		closeStore(t, s)
	}
}

// TestFailedReadEndsTheProcess fails reads. The process ends within the read, so no answer and no decision lacks what
// couldn't be read.
func TestFailedReadEndsTheProcess(t *testing.T) {
	h := newHistory(1)
	rs := h.records(3000)
	for i := range 300 {
		rs = append(rs, h.task(fmt.Sprint("held-", i), &events.TaskHeld{Error: &events.Error{Code: "c", Message: strings.Repeat("m", 1000)}})...)
	}
	more := h.records(100)
	mem := vfs.NewCrashableMem()
	before := open(t, mem, projections.ViewTimelines)
	v, err := before.Timelines(testPartition)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, v, rs[:2900])
	v.Save()
	apply(t, v, rs[2900:])
	v.Close()
	closeStore(t, before)
	for what, read := range map[string]func(*projections.Store, *projections.Timelines){
		"events": func(_ *projections.Store, v *projections.Timelines) {
			for i := range more {
				_ = v.Apply(&more[i])
			}
		},
		"a timeline": func(_ *projections.Store, v *projections.Timelines) { v.Timeline("held-7") },
		"alerts": func(s *projections.Store, _ *projections.Timelines) {
			_, _ = s.Alerts([]int32{testPartition}, projections.AlertQuery{Limit: 300})
		},
		"a list": func(s *projections.Store, _ *projections.Timelines) {
			_, _ = s.List(t.Context(), []int32{testPartition}, projections.Filter{}, projections.Cursor{}, 300)
		},
		"a digest": func(_ *projections.Store, v *projections.Timelines) { v.Digest() },
	} {
		t.Run(what, func(t *testing.T) {
			deaf := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpFileReadAt {
					return &os.PathError{Op: "read", Path: op.Path, Err: syscall.EIO}
				}
				return nil
			})}
			err := process(t, func(fatal func(error)) error {
				s, err := projections.Open("data/timelines", identity(projections.ViewTimelines),
					projections.Options{FS: errorfs.Wrap(mem.CrashClone(vfs.CrashCloneCfg{}), deaf), Fatal: fatal})
				if err != nil {
					return fmt.Errorf("open: %w", err)
				}
				v, err := s.Timelines(testPartition)
				if err == nil {
					err = s.WaitCompacted(t.Context()) // so that nothing is read in the background
				}
				if err != nil {
					return fmt.Errorf("open the view: %w", err)
				}
				deaf.On()
				read(s, v)
				return errors.New("nothing was read")
			})
			checkDiskError(t, err, syscall.EIO, "replace the disk")
		})
	}
}

// TestFlippedByteEndsTheProcess checks that a corrupt file gives an error that says what to do, at Open or at a read.
func TestFlippedByteEndsTheProcess(t *testing.T) {
	t.Parallel()
	rs := newHistory(4).records(1200)
	corrupt := 0
	files := []string{".sst", ".blob", "MANIFEST", "identity.json"}
	flips := suite.Of(t, 10, 80)
	for seed := range uint64(flips) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		fs := vfs.NewMem()
		var flushed atomic.Int64
		if err := fill(fs, projections.Options{MemtableBytes: projections.MinMemtableBytes}, rs, &flushed); err != nil {
			t.Fatal(err)
		}
		flip(t, fs, rnd, "data/tasks", files[seed%uint64(len(files))])
		err := process(t, func(fatal func(error)) error {
			s, err := projections.Open("data/tasks", identity(projections.ViewTasks), projections.Options{FS: fs, Fatal: fatal})
			if err != nil {
				return err
			}
			v := tasksOf(t, s)
			v.Digest()
			// The byte had no meaning, or a MANIFEST lost its end as in a crash. Then the store has an earlier state.
			model := prefix(4, v.Next(), len(rs))
			same(t, v, model.tasks, model.state)
			v.Close()
			return s.Close()
		})
		if err == nil {
			continue
		}
		corrupt++
		if !errors.Is(err, projections.ErrCorrupt) && !errors.Is(err, projections.ErrForeign) {
			t.Errorf("seed %d: %v", seed, err)
		}
		if !strings.Contains(strings.ToLower(err.Error()), "delete") {
			t.Errorf("seed %d: the error doesn't say what to do: %v", seed, err)
		}
	}
	if corrupt < flips/2 {
		t.Fatalf("only %d of %d flipped bytes were noticed", corrupt, flips)
	}
}

// flip changes one byte of a file whose name contains part.
func flip(t *testing.T, fs *vfs.MemFS, rnd *rand.Rand, dir, part string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var of []string
	for _, n := range names {
		if strings.Contains(n, part) {
			if st, err := fs.Stat(fs.PathJoin(dir, n)); err == nil && st.Size() > 0 {
				of = append(of, n)
			}
		}
	}
	if len(of) == 0 {
		t.Fatalf("no file like %s in %v", part, names)
	}
	data, err := fs.UnsafeGetFileDataBuffer(fs.PathJoin(dir, of[rnd.IntN(len(of))]))
	if err != nil {
		t.Fatal(err)
	}
	data[rnd.IntN(len(data))] ^= 1 << rnd.IntN(8)
}

// TestLostFilesAreNoticed checks that a store which lost its files isn't taken for a new one.
func TestLostFilesAreNoticed(t *testing.T) {
	for _, part := range []string{".sst", ".blob", "MANIFEST", "marker.manifest"} {
		dir := filepath.Join(t.TempDir(), "data")
		o := projections.Options{MemtableBytes: projections.MinMemtableBytes}
		s, err := projections.Open(dir, identity(projections.ViewTasks), o)
		if err != nil {
			t.Fatal(err)
		}
		v := tasksOf(t, s)
		apply(t, v, newHistory(1).records(300))
		v.Close()
		closeStore(t, s)
		files, err := filepath.Glob(filepath.Join(dir, "*"+part+"*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no file like %s: %v", part, err)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
		err = process(t, func(fatal func(error)) error {
			o.Fatal = fatal
			s, err := projections.Open(dir, identity(projections.ViewTasks), o)
			if err == nil {
				tasksOf(t, s).EachOpen(func(*events.Task) {})
				err = errors.New("nothing is missing")
			}
			return err
		})
		checkDiskError(t, err, projections.ErrCorrupt, "Delete the directory")
	}
}

// TestCorruptValuesEndTheProcess checks that a file of values that becomes corrupt while the store is open ends the
// process with our error, and not with a panic of Pebble. A compaction finds it in a goroutine of Pebble. The next
// process finds it at a read.
func TestCorruptValuesEndTheProcess(t *testing.T) {
	rs := newHistory(3).records(600)
	for _, c := range []struct {
		name       string
		corruption func(*vfs.MemFS, string, []byte) error
	}{
		{"gone", func(fs *vfs.MemFS, name string, _ []byte) error { return fs.Remove(name) }},
		{"the end", func(_ *vfs.MemFS, _ string, data []byte) error { data[len(data)-20] ^= 1; return nil }},
		{"the magic", func(_ *vfs.MemFS, _ string, data []byte) error { data[len(data)-1] ^= 1; return nil }},
		{"a value", func(_ *vfs.MemFS, _ string, data []byte) error { data[len(data)/3] ^= 1; return nil }},
		{"the index", func(_ *vfs.MemFS, _ string, data []byte) error { data[len(data)-50] ^= 1; return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			err := process(t, func(fatal func(error)) error {
				o := projections.Options{FS: fs, Fatal: fatal}.Rewriting()
				s, err := projections.Open("data/tasks", identity(projections.ViewTasks), o)
				if err != nil {
					return err
				}
				v := tasksOf(t, s)
				for i := 0; i < len(rs); i += 100 {
					apply(t, v, rs[i:i+100])
					v.Save()
					if err := s.Flush(); err != nil {
						return err
					}
				}
				if err := s.WaitCompacted(t.Context()); err != nil { // files don't change any more
					return err
				}
				for _, name := range valueFiles(t, fs) {
					data, err := fs.UnsafeGetFileDataBuffer(name)
					if err == nil {
						err = c.corruption(fs, name, data)
					}
					if err != nil {
						return err
					}
				}
				return cmp.Or(s.Compact(), errors.New("the compaction found nothing"))
			})
			checkDiskError(t, err, projections.ErrCorrupt, "Delete the directory")
			err = process(t, func(fatal func(error)) error {
				next := vfs.NewMem()
				if _, err := vfs.Clone(fs, next, "data", "data"); err != nil {
					return err
				}
				o := projections.Options{FS: next, Fatal: fatal}.Rewriting()
				s, err := projections.Open("data/tasks", identity(projections.ViewTasks), o)
				if err != nil {
					return err
				}
				tasksOf(t, s).Digest()
				return errors.New("the next process found nothing")
			})
			checkDiskError(t, err, projections.ErrCorrupt, "Delete the directory")
		})
	}
}

// valueFiles returns the files of values in data/tasks, of which there must be some.
func valueFiles(t *testing.T, fs *vfs.MemFS) (files []string) {
	t.Helper()
	names, err := fs.List("data/tasks")
	for _, n := range names {
		if strings.HasSuffix(n, ".blob") {
			files = append(files, fs.PathJoin("data/tasks", n))
		}
	}
	if err != nil || len(files) < 2 {
		t.Fatalf("files of values: %q, %v", files, err)
	}
	return files
}

// TestRunFlushesByTimeAndBySize runs on a virtual clock.
func TestRunFlushesByTimeAndBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, vfs.NewMem(), projections.ViewTasks)
		ended := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			s.Run(ctx)
			close(ended)
		}()
		v := tasksOf(t, s)
		h := newHistory(1)
		save := func(n int) {
			t.Helper()
			apply(t, v, h.records(n))
			v.Save()
			synctest.Wait()
		}
		flushed := func(want bool) {
			t.Helper()
			if _, next := v.FlushedState(); (next == v.Next()) != want {
				t.Fatalf("flushed %d, saved %d", next, v.Next())
			}
		}
		save(20)
		flushed(false)
		time.Sleep(projections.DefaultFlushEvery)
		synctest.Wait()
		flushed(true)
		h.input = projections.MinMemtableBytes // one task is enough for a flush by size
		save(100)
		flushed(true)
		cancel()
		<-ended
		closeStore(t, s)
	})
}

// TestWipeDuringAFlush wipes a partition while a flush writes what it held. That must not count as its flushed state.
func TestWipeDuringAFlush(t *testing.T) {
	var block atomic.Bool
	blocked, released := make(chan struct{}), make(chan struct{})
	fs := errorfs.Wrap(vfs.NewMem(), writes(func(errorfs.Op) error {
		if block.CompareAndSwap(true, false) {
			close(blocked)
			<-released
		}
		return nil
	}))
	s := open(t, fs, projections.ViewTasks)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	apply(t, v, newHistory(1).records(50))
	v.Save()
	block.Store(true)
	flushed := make(chan error, 1)
	go func() { flushed <- s.Flush() }()
	<-blocked
	v.Wipe()
	close(released)
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
	if st, next := v.FlushedState(); next != 0 || st.Epoch != 0 {
		t.Errorf("flushed %d (epoch %d) of a wiped partition", next, st.Epoch)
	}
	apply(t, v, newHistory(1).records(20))
	v.Save()
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, next := v.FlushedState(); next != v.Next() {
		t.Errorf("flushed %d, saved %d", next, v.Next())
	}
}
