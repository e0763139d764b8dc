package projections_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// hookedFS calls hook before every change of a file or directory. If hook returns an error, the change fails with it.
type hookedFS struct {
	vfs.FS
	hook func(op string) error
	off  atomic.Bool
}

func (f *hookedFS) try(op string) error {
	if f.off.Load() {
		return nil
	}
	return f.hook(op)
}

func (f *hookedFS) Unwrap() vfs.FS { return f.FS }

func (f *hookedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.try("create " + name); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	return &hookedFile{file, f}, nil
}

func (f *hookedFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &hookedFile{file, f}, nil
}

func (f *hookedFS) Rename(from, to string) error {
	if err := f.try("rename " + to); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

type hookedFile struct {
	vfs.File
	fs *hookedFS
}

func (f *hookedFile) Write(p []byte) (int, error) {
	if err := f.fs.try("write"); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *hookedFile) Sync() error {
	if err := f.fs.try("sync"); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *hookedFile) SyncData() error {
	if err := f.fs.try("sync"); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f *hookedFile) SyncTo(n int64) (bool, error) {
	if err := f.fs.try("sync"); err != nil {
		return false, err
	}
	return f.File.SyncTo(n)
}

// TestDiskFullAtOpen opens a store that must flush on a full disk. Open returns an error instead of retrying forever.
// The data is intact once the disk has space again.
func TestDiskFullAtOpen(t *testing.T) {
	rs := newHistory(9).records(300)
	for n := int64(0); n < 20; n++ {
		mem := vfs.NewCrashableMem()
		if _, err := fill(mem, projections.Options{FS: mem}, rs); err != nil {
			t.Fatal(err)
		}
		var count, told atomic.Int64
		full := &hookedFS{FS: mem, hook: func(op string) error {
			if count.Add(1) > n {
				return &os.PathError{Op: op, Path: "data", Err: syscall.ENOSPC}
			}
			return nil
		}}
		opened := make(chan error, 1)
		go func() {
			s, err := projections.Open("data/tasks", identity(projections.ViewTasks), projections.Options{FS: full,
				Listener: &projections.Listener{Background: func(error) { told.Add(1) }}})
			if err == nil {
				err = s.Close()
			}
			opened <- err
		}()
		select {
		case err := <-opened:
			if count.Load() > n && !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("n=%d: the disk was full, and opening says %v", n, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("n=%d: opening on a full disk doesn't end; %d errors were told", n, told.Load())
		}
		full.off.Store(true)
		s, err := projections.Open("data/tasks", identity(projections.ViewTasks), projections.Options{FS: full})
		if err != nil {
			t.Fatalf("n=%d: with room again: %v", n, err)
		}
		closeStore(t, s)
	}
}

// TestDiskFullStopsTheStore fails every change from the nth on. The error is returned, the store stops and closes, and
// the flushed data is intact once the disk has space again.
func TestDiskFullStopsTheStore(t *testing.T) {
	rs := newHistory(9).records(900)
	for n := int64(0); n < 400; n += 1 + n/8 {
		mem := vfs.NewCrashableMem()
		var count, fatal atomic.Int64
		fs := &hookedFS{FS: mem, hook: func(op string) error {
			if count.Add(1) > n {
				return &os.PathError{Op: op, Path: "data", Err: syscall.ENOSPC}
			}
			return nil
		}}
		o := projections.Options{FS: fs, MemtableBytes: projections.MinMemtableBytes,
			Listener: &projections.Listener{Fatal: func(error) { fatal.Add(1) }}}
		flushed, err := fill(fs, o.Rewriting(), rs)
		if err == nil {
			if count.Load() > n {
				t.Fatalf("n=%d: the disk was full and nobody said so", n)
			}
			continue
		}
		if !errors.Is(err, syscall.ENOSPC) && !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
			t.Fatalf("n=%d: %v", n, err)
		}
		if fatal.Load() > 1 {
			t.Fatalf("n=%d: Fatal %d times", n, fatal.Load())
		}
		after := open(t, mem.CrashClone(vfs.CrashCloneCfg{}), projections.ViewTasks)
		v := tasksOf(t, after)
		if v.Next() < flushed {
			t.Fatalf("n=%d: opens at %d, %d was flushed", n, v.Next(), flushed)
		}
		model := prefix(9, v.Next(), len(rs))
		same(t, v, model.tasks, model.state)
		closeStore(t, after)
	}
}

// fill applies, saves and flushes until something fails. It returns the flushed offset.
func fill(fs vfs.FS, o projections.Options, rs []record) (flushed int64, err error) {
	s, err := projections.Open("data/tasks", identity(projections.ViewTasks), o)
	if err != nil {
		return 0, fmt.Errorf("open: %w", err)
	}
	v, err := s.Tasks(testPartition)
	for i := range rs {
		if err != nil {
			break
		}
		if err = v.Apply(&rs[i]); err == nil && i%10 == 0 {
			err = v.Save()
		}
		if err == nil && i%100 == 0 {
			err = s.Flush()
			_, flushed = v.FlushedState()
		}
	}
	if err == nil {
		return flushed, s.Close()
	}
	if s.Err() == nil {
		return flushed, fmt.Errorf("the store hasn't stopped after: %w", err)
	}
	// Every later call returns the same error.
	_, perr := s.Partitions()
	if perr == nil || s.Flush() == nil || s.Run(context.Background()) == nil {
		return flushed, errors.New("a stopped store goes on")
	}
	if s.Close() == nil {
		return flushed, errors.New("Close of a stopped store says nothing")
	}
	return flushed, err
}

// deafFS is a file system whose reads fail while it is deaf.
type deafFS struct {
	vfs.FS
	deaf atomic.Bool
}

func (f *deafFS) Unwrap() vfs.FS { return f.FS }

func (f *deafFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	return &deafFile{file, f}, err
}

type deafFile struct {
	vfs.File
	fs *deafFS
}

func (f *deafFile) ReadAt(p []byte, at int64) (int, error) {
	if f.fs.deaf.Load() {
		return 0, &os.PathError{Op: "read", Path: "data", Err: syscall.EIO}
	}
	return f.File.ReadAt(p, at)
}

// settle waits until Pebble reads nothing in the background. A failed background read would stop the store.
func settle(t *testing.T, s *projections.Store) {
	t.Helper()
	if err := s.WaitCompacted(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestSaveThatFailsStopsTheStore checks that the store stops if a lookup within a Save of timelines fails. The changes
// that the Save has handled by then are in no batch, and a later Save wouldn't write them.
func TestSaveThatFailsStopsTheStore(t *testing.T) {
	stopped := 0
	for seed := range uint64(12) {
		rs := newHistory(seed).records(3000)
		fs := &deafFS{FS: vfs.NewCrashableMem()}
		s := open(t, fs, projections.ViewTimelines)
		v, err := s.Timelines(testPartition)
		if err != nil {
			t.Fatal(err)
		}
		apply(t, v, rs[:2900])
		v.Close()
		closeStore(t, s)

		s = open(t, fs, projections.ViewTimelines) // with nothing in memory
		if v, err = s.Timelines(testPartition); err != nil {
			t.Fatal(err)
		}
		apply(t, v, rs)
		fs.deaf.Store(true)
		err = v.Save()
		fs.deaf.Store(false)
		if err != nil && !errors.Is(err, syscall.EIO) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if s.Err() != nil {
			stopped++
			if v.Save() == nil {
				t.Errorf("seed %d: a stopped store saves", seed)
			}
			v.Discard()
			if err := s.Close(); !errors.Is(err, syscall.EIO) {
				t.Errorf("seed %d: closed with %v", seed, err)
			}
			continue
		}
		more := newHistory(seed).records(3050)
		apply(t, v, more)
		sameTimelines(t, v, s, more)
		v.Close()
		closeStore(t, s)
	}
	if stopped == 0 {
		t.Fatal("no Save had anything to look up")
	}
}

// TestFailedReadOfTheEarliestTimer checks that nothing is lost if only the search for the earliest timer fails, after
// the batch of a Save.
func TestFailedReadOfTheEarliestTimer(t *testing.T) {
	h := newHistory(1)
	rs := h.records(3000)
	fs := &deafFS{FS: vfs.NewCrashableMem()}
	s := open(t, fs, projections.ViewTimelines)
	v, err := s.Timelines(testPartition)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, v, rs)
	v.Close()
	closeStore(t, s)

	s = open(t, fs, projections.ViewTimelines) // with nothing in memory
	settle(t, s)
	if v, err = s.Timelines(testPartition); err != nil {
		t.Fatal(err)
	}
	rs = append(rs, h.task("late")...)
	rs = append(rs, h.record(&events.Event{Task: "late", Seq: 2, Prev: h.tasks["late"].Prev, Epoch: h.state.Epoch, Due: events.Millis(h.at.Add(time.Hour)), Fact: &events.TaskStarted{},
		Policy: &events.Policy{Timer: events.TimerTask, Attempts: testAttempts, OnError: events.OnErrorUndo}}))
	apply(t, v, rs)
	fs.deaf.Store(true)
	err = v.Save()
	fs.deaf.Store(false)
	if !errors.Is(err, syscall.EIO) || s.Err() != nil {
		t.Fatalf("saved with %v, the store with %v", err, s.Err())
	}
	more := h.task("later")
	apply(t, v, more)
	sameTimelines(t, v, s, append(rs, more...))
	v.Close()
	closeStore(t, s)
}

// TestTransientFailureOfAlertReads checks that a transient failure of the disk isn't a corruption. The caller gets the
// error, and the store continues.
func TestTransientFailureOfAlertReads(t *testing.T) {
	h := newHistory(1)
	fs := &deafFS{FS: vfs.NewCrashableMem()}
	s := open(t, fs, projections.ViewTimelines)
	v, err := s.Timelines(testPartition)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		apply(t, v, h.task(fmt.Sprint("held-", i), &events.TaskHeld{Error: &events.Error{Code: "c", Message: strings.Repeat("m", 1000)}}))
	}
	v.Close()
	closeStore(t, s)
	s = open(t, fs, projections.ViewTimelines)
	settle(t, s)
	ask := func(limit int) error {
		_, err := s.Alerts([]int32{testPartition}, projections.AlertQuery{Limit: limit})
		return err
	}
	if err := ask(1); err != nil { // now the keys are in memory, and the values aren't
		t.Fatal(err)
	}
	fs.deaf.Store(true)
	if err := ask(300); !errors.Is(err, syscall.EIO) || errors.Is(err, projections.ErrCorrupt) {
		t.Errorf("asked for what can't be read: %v", err)
	}
	fs.deaf.Store(false)
	if err := errors.Join(ask(300), s.Err()); err != nil {
		t.Errorf("asked again: %v", err)
	}
	_ = s.Close()
}

// sameTimelines compares a view and its counts with a rebuild.
func sameTimelines(t *testing.T, v *projections.Timelines, s *projections.Store, rs []record) {
	t.Helper()
	rebuilt := open(t, vfs.NewMem(), projections.ViewTimelines)
	w, err := rebuilt.Timelines(testPartition)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, w, rs)
	if got, want := digest(t, v), digest(t, w); got != want {
		t.Errorf("digest %s, of a rebuild %s", got, want)
	}
	got, _, err := s.Counts(testPartition)
	want, _, werr := rebuilt.Counts(testPartition)
	if err != nil || werr != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("counts, %v %v\n got %+v\nwant %+v", err, werr, got, want)
	}
	w.Close()
	closeStore(t, rebuilt)
}

// TestFlippedByteStopsTheStore checks that a corrupt file gives an error that says what to do, at Open or at a read,
// and never ends the process.
func TestFlippedByteStopsTheStore(t *testing.T) {
	t.Parallel()
	rs := newHistory(4).records(1200)
	corrupt := 0
	files := []string{".sst", ".blob", "MANIFEST", "identity.json"}
	for seed := range uint64(80) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		fs := vfs.NewMem()
		s := open(t, fs, projections.ViewTasks)
		v := tasksOf(t, s)
		apply(t, v, rs)
		v.Close()
		closeStore(t, s)
		flip(t, fs, rnd, "data/tasks", files[seed%uint64(len(files))])

		s, err := projections.Open("data/tasks", identity(projections.ViewTasks), projections.Options{FS: fs})
		if err == nil {
			v, verr := s.Tasks(testPartition)
			if err = verr; err == nil {
				_, err = v.Digest()
			}
			if err == nil {
				// The byte had no meaning, or a MANIFEST lost its end as in a crash. Then the store has an earlier
				// state.
				model := prefix(4, v.Next(), len(rs))
				same(t, v, model.tasks, model.state)
			}
			if cerr := s.Close(); err == nil {
				err = cerr
			}
		}
		if err == nil {
			continue
		}
		corrupt++
		if !errors.Is(err, projections.ErrCorrupt) && !errors.Is(err, projections.ErrForeign) {
			t.Errorf("seed %d: %v", seed, err)
		}
		if !strings.Contains(err.Error(), "delete") {
			t.Errorf("seed %d: the error doesn't say what to do: %v", seed, err)
		}
	}
	if corrupt < 50 {
		t.Fatalf("only %d of 80 flipped bytes were noticed", corrupt)
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
		dir := t.TempDir()
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
		s, err = projections.Open(dir, identity(projections.ViewTasks), o)
		if err == nil {
			_, err = s.Tasks(testPartition)
			if cerr := s.Close(); err == nil {
				err = cerr
			}
		}
		if !errors.Is(err, projections.ErrCorrupt) {
			t.Errorf("without %s: %v", part, err)
		}
	}
}

// TestCorruptValuesStopAnOpenStore checks that a file of values that becomes corrupt while the store is open stops the
// store and not the process. Pebble finds it in a compaction, in a goroutine of its own. A read, or the next Open,
// finds it too.
func TestCorruptValuesStopAnOpenStore(t *testing.T) {
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
			fs := vfs.NewMem()
			s, err := projections.Open("data/tasks", identity(projections.ViewTasks), projections.Options{FS: fs}.Rewriting())
			if err != nil {
				t.Fatal(err)
			}
			v := tasksOf(t, s)
			for i := 0; i < len(rs); i += 100 {
				apply(t, v, rs[i:i+100])
				if err := errors.Join(v.Save(), s.Flush()); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.WaitCompacted(t.Context()); err != nil { // files don't change any more
				t.Fatal(err)
			}
			for _, name := range valueFiles(t, fs) {
				data, err := fs.UnsafeGetFileDataBuffer(name)
				if err == nil {
					err = c.corruption(fs, name, data)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			err = s.Compact()
			if !errors.Is(err, projections.ErrCorrupt) || !strings.Contains(err.Error(), "delete") {
				t.Errorf("a compaction: %v", err)
			}
			v.Close()
			if err := s.Close(); !errors.Is(err, projections.ErrCorrupt) {
				t.Errorf("closed: %v", err)
			}
			s, err = projections.Open("data/tasks", identity(projections.ViewTasks), projections.Options{FS: fs}.Rewriting())
			if err == nil {
				_, err = s.Tasks(testPartition)
				err = errors.Join(err, s.Close())
			}
			if !errors.Is(err, projections.ErrCorrupt) {
				t.Errorf("opened again: %v", err)
			}
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
		ended := make(chan error)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { ended <- s.Run(ctx) }()
		v := tasksOf(t, s)
		h := newHistory(1)
		save := func(n int) {
			t.Helper()
			apply(t, v, h.records(n))
			if err := v.Save(); err != nil {
				t.Fatal(err)
			}
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
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
	})
}
