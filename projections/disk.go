package projections

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is a layer between Pebble and the file system. Pebble makes four assumptions that it
// removes: a file system keeps the order of changes to a directory over a crash; the process may
// end if a directory can't be synced (vfs/atomicfs, Marker.Move panics); it may end if a file of
// values is lost or truncated (see value_files.go); and a failing disk soon works again, since
// Pebble repeats a failed flush at once and forever, and its Open waits for that.
//
// A change that fails stops the store, and Pebble sees a success. From then on no change reaches
// the disk, and Pebble sees successes only. So Pebble can close, and the disk has what a crash at
// that moment would have left. A stopped store never counts anything as flushed.
type disk struct {
	vfs.FS
	s *Store
}

// markerPrefix begins the names of the empty files that name the current MANIFEST. Pebble creates
// the new one, removes the old one, and then syncs the directory once.
const markerPrefix = "marker."

// Unwrap returns the file system below, as vfs.Root wants it.
func (d disk) Unwrap() vfs.FS { return d.FS }

// stopRefused stops the store for a change that failed.
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

// create creates a file. In a stopped store it returns a nullFile.
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

// Create syncs what a marker names before it creates the marker.
func (d disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.create(name, func() (vfs.File, error) {
		if err := d.syncMarkerDir(name); err != nil {
			return nil, err
		}
		return d.FS.Create(name, c)
	})
}

// ReuseForWrite is Create with the space of an obsolete file.
func (d disk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.create(to, func() (vfs.File, error) { return d.FS.ReuseForWrite(from, to, c) })
}

// Remove syncs a new marker before it removes the old one. It returns the error of a missing file:
// that is no fault of the disk.
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

// Sync never returns an error, as no change does.
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

// Close closes the descriptor, also in a stopped store.
func (f file) Close() error {
	if err := f.File.Close(); err != nil && !f.s.faulty.Load() {
		f.s.stopRefused("close", f.name, err)
	}
	return nil
}

// nullFile is the file that a stopped store creates. It drops all writes.
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
