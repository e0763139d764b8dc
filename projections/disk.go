package projections

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk stands between Pebble and the file system for four things that Pebble
// takes for granted: that a file system keeps the order of changes to a
// directory over a crash, that the process may end when a directory can't be
// synced (vfs/atomicfs, Marker.Move panics), that it may when a file of values
// is lost or has lost its end (see value_files.go), and that a disk that refuses something
// takes it soon after: Pebble repeats a flush that failed at once and for ever,
// and its Open waits for that.
//
// So a change that fails stops the store, and Pebble is told that it was done;
// so it is of all that come after, and nothing more reaches the disk. Pebble
// comes to its end, and the disk keeps what a crash at that moment would have
// left. Nothing counts as flushed in a store that has stopped.
type disk struct {
	vfs.FS
	s *Store
}

// markerPrefix begins the names of the empty files that say which MANIFEST
// counts. Pebble makes the new one, removes the old one and then syncs the
// directory once.
const markerPrefix = "marker."

// Unwrap returns the file system below, as vfs.Root wants it.
func (d disk) Unwrap() vfs.FS { return d.FS }

// refused stops the store for a change that failed.
func (s *Store) stopRefused(doing, name string, err error) {
	s.fail(fmt.Errorf("projections: %s %s: %w; see to the disk, then start again: nothing is lost, the log is replayed", doing, name, err))
}

// change makes a change, unless the store has stopped.
func (d disk) change(doing, name string, do func() error) error {
	if d.s.faulty.Load() {
		return nil
	}
	if err := do(); err != nil {
		d.s.stopRefused(doing, name, err)
	}
	return nil
}

// create makes a file, one that goes nowhere if the store has stopped.
func (d disk) create(name string, do func() (vfs.File, error)) (vfs.File, error) {
	var f vfs.File
	err := d.change("create", name, func() (err error) {
		f, err = do()
		return err
	})
	if f == nil {
		return nullFile{}, err
	}
	return file{f, d.s, name}, err
}

// Create puts what a marker names on disk before the marker.
func (d disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.create(name, func() (vfs.File, error) {
		if err := d.syncMarkerDir(name); err != nil {
			return nil, err
		}
		return d.FS.Create(name, c)
	})
}

// ReuseForWrite is Create with the space of a file that isn't needed any more.
func (d disk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.create(to, func() (vfs.File, error) { return d.FS.ReuseForWrite(from, to, c) })
}

// Remove puts the marker that replaces another on disk before that goes. What
// isn't there is told: it is no fault of the disk.
func (d disk) Remove(name string) error {
	var missing error
	return errors.Join(d.change("remove", name, func() error {
		if err := d.syncMarkerDir(name); err != nil {
			return err
		}
		err := d.FS.Remove(name)
		if errors.Is(err, fs.ErrNotExist) {
			missing, err = err, nil
		}
		return err
	}), missing)
}

// Rename moves a file.
func (d disk) Rename(from, to string) error {
	return d.change("rename", from, func() error { return d.FS.Rename(from, to) })
}

// Link gives a file a second name.
func (d disk) Link(from, to string) error {
	return d.change("link", from, func() error { return d.FS.Link(from, to) })
}

func (d disk) syncMarkerDir(name string) error {
	if !strings.HasPrefix(d.PathBase(name), markerPrefix) {
		return nil
	}
	return syncDir(d.FS, d.PathDir(name))
}

// OpenDir returns a directory whose Sync stops the store instead of failing.
func (d disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return directory{f, d.s, name}, nil
}

type directory struct {
	vfs.File
	s    *Store
	name string
}

// Sync never fails for Pebble, as no change does.
func (d directory) Sync() error { return file(d).Sync() }

// file is one that Pebble writes.
type file struct {
	vfs.File
	s    *Store
	name string
}

func (f file) change(doing string, do func() error) {
	if f.s.faulty.Load() {
		return
	}
	if err := do(); err != nil {
		f.s.stopRefused(doing, f.name, err)
	}
}

func (f file) Write(b []byte) (int, error) {
	f.change("write", func() error {
		_, err := f.File.Write(b)
		return err
	})
	return len(b), nil
}

func (f file) WriteAt(b []byte, at int64) (int, error) {
	f.change("write", func() error {
		_, err := f.File.WriteAt(b, at)
		return err
	})
	return len(b), nil
}

func (f file) Sync() error {
	f.change("sync", f.File.Sync)
	return nil
}

func (f file) SyncData() error {
	f.change("sync", f.File.SyncData)
	return nil
}

func (f file) SyncTo(n int64) (full bool, _ error) {
	f.change("sync", func() (err error) {
		full, err = f.File.SyncTo(n)
		return err
	})
	return full, nil
}

func (f file) Preallocate(offset, n int64) error {
	f.change("preallocate", func() error { return f.File.Preallocate(offset, n) })
	return nil
}

// Close gives the descriptor back, whatever became of the store.
func (f file) Close() error {
	if err := f.File.Close(); err != nil && !f.s.faulty.Load() {
		f.s.stopRefused("close", f.name, err)
	}
	return nil
}

// nowhere is the file that is created when the store has stopped: it takes
// everything and keeps nothing.
type nullFile struct{}

func (nullFile) Close() error                            { return nil }
func (nullFile) Read([]byte) (int, error)                { return 0, io.EOF }
func (nullFile) ReadAt([]byte, int64) (int, error)       { return 0, io.EOF }
func (nullFile) Write(b []byte) (int, error)             { return len(b), nil }
func (nullFile) WriteAt(b []byte, _ int64) (int, error)  { return len(b), nil }
func (nullFile) Preallocate(_, _ int64) error            { return nil }
func (nullFile) Stat() (vfs.FileInfo, error)             { return nil, fs.ErrNotExist }
func (nullFile) Sync() error                             { return nil }
func (nullFile) SyncTo(int64) (fullSync bool, err error) { return true, nil }
func (nullFile) SyncData() error                         { return nil }
func (nullFile) Prefetch(_, _ int64) error               { return nil }
func (nullFile) Fd() uintptr                             { return vfs.InvalidFd }
