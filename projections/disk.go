package projections

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is a layer between Pebble and the file system, for four assumptions of Pebble that don't hold here. Pebble
// assumes that a crash keeps the order of changes to a directory. It panics if a directory can't be synced
// (vfs/atomicfs, Marker.Move). It panics if a file of values is lost or truncated (see value_files.go). It assumes that
// a failing disk soon works again: it repeats a failed flush immediately and forever, and its Open waits for that.
//
// A change that fails stops the store, and Pebble gets a success. From then on no change reaches the disk, and Pebble
// gets successes only. So Pebble can be closed, and the disk has what a crash at that moment would have left. A stopped
// store never counts anything as flushed.
type disk struct {
	vfs.FS
	s *Store
}

// markerPrefix begins the names of the empty files that name the current MANIFEST. Pebble creates
// the new one, removes the old one, and then syncs the directory once.
const markerPrefix = "marker."

// Unwrap returns the underlying file system, as vfs.Root requires.
func (d disk) Unwrap() vfs.FS { return d.FS }

// stopRefused stops the store because a change failed.
func (s *Store) stopRefused(doing, name string, err error) {
	s.fail(fmt.Errorf("projections: %s %s: %w; see to the disk, then start again: nothing is lost, the log is replayed", doing, name, err))
}

// change makes a change, unless the store has stopped. It always returns nil.
func (d disk) change(doing, name string, do func() error) error {
	if d.s.faulty.Load() {
		return nil
	}
	if err := do(); err != nil {
		d.s.stopRefused(doing, name, err)
	}
	return nil
}

// create creates a file. It returns a nullFile if that fails or the store has stopped.
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

// Create syncs the directory before it creates a marker, so that the file which the marker names is durable first.
func (d disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.create(name, func() (vfs.File, error) {
		if err := d.syncMarkerDir(name); err != nil {
			return nil, err
		}
		return d.FS.Create(name, c)
	})
}

// ReuseForWrite is Create with the space of an obsolete file, which is never a marker.
func (d disk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.create(to, func() (vfs.File, error) { return d.FS.ReuseForWrite(from, to, c) })
}

// Remove syncs the directory before it removes a marker, so that the new marker is durable first. It returns the error
// of a missing file, since that isn't a failure of the disk.
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

// Sync always returns nil, like every change.
func (d directory) Sync() error { return file(d).Sync() }

// file is a file that Pebble writes.
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

// Close closes the descriptor, even in a stopped store.
func (f file) Close() error {
	if err := f.File.Close(); err != nil && !f.s.faulty.Load() {
		f.s.stopRefused("close", f.name, err)
	}
	return nil
}

// nullFile is the file that a stopped store creates. It discards all writes.
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
