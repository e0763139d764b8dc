package projections

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable/blob"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A store whose disk fails ends the process with one message (Options.Fatal). Nothing is lost: the log has every event,
// and a restart reads on from what was flushed. No decision is made on a store that may be wrong, and none is committed
// that needed the failed call, since that never returns. The next owner aborts the open transaction.
//
// Pebble 2.1.7 can't be trusted with a failure. A failed flush or compaction is passed to EventListener.BackgroundError,
// and repeated at once and forever. A failed write of the MANIFEST is passed to Logger.Fatalf, which may not return.
// Pebble panics, with a stack and no advice, if a directory can't be synced (vfs/atomicfs, Marker.Move), if a file of
// values can't be created (fileBufferedWritable.Abort), and if one is missing or truncated (findOrCreateBlob names no
// file). So disk ends the process within the failed change. Failed reads are returned, or passed to BackgroundError.

// DiskError is the error of a store whose disk failed, or whose files are corrupt. Its text says what to do.
type DiskError struct {
	Dir string
	Err error
}

func (e *DiskError) Error() string {
	do := "Check its disk and permissions, replace the disk if it is broken, and start again: a lost directory is rebuilt from the log"
	switch {
	case errors.Is(e.Err, syscall.ENOSPC), errors.Is(e.Err, syscall.EDQUOT):
		do = "Free space for the directory, then start again"
	case errors.Is(e.Err, ErrCorrupt):
		do = "Delete the directory, then start again: it is rebuilt from the log. If that happens twice, replace the disk"
	}
	return fmt.Sprintf("the store in %s failed, so the process ends: %v. Nothing is lost, since the store is a copy of the log. %s", e.Dir, e.Err, do)
}

// Unwrap returns the reason.
func (e *DiskError) Unwrap() error { return e.Err }

// diskError returns the error that ends the process.
func (s *Store) diskError(err error) *DiskError {
	if pebble.IsCorruptionError(err) && !errors.Is(err, ErrCorrupt) {
		err = fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	return &DiskError{s.dir, err}
}

// fatal ends the process. Any goroutine may call it, also those of Pebble, which hold its locks.
func (s *Store) fatal(err error) {
	err = s.diskError(err)
	if s.o.Fatal != nil {
		s.o.Fatal(err)
	}
	panic(err)
}

// eventListener ends the process if Pebble fails in the background.
func (s *Store) eventListener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: s.fatal,
		DataCorruption:  func(info pebble.DataCorruptionInfo) { s.fatal(fmt.Errorf("%w: %w", info.Details, ErrCorrupt)) },
	}
}

// pebbleLogger receives Pebble's log.
type pebbleLogger struct{ s *Store }

// Infof and Errorf drop messages for developers of Pebble.
func (pebbleLogger) Infof(string, ...any)  {}
func (pebbleLogger) Errorf(string, ...any) {}

// Fatalf ends the process.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	for _, a := range args {
		if cause, is := a.(error); is {
			err = fmt.Errorf("MANIFEST: %w", cause) // keeps the kind of the error, which decides what to do
		}
	}
	l.s.fatal(err)
}

// disk is the file system of a store. A failed change ends the process, and so does a file of values that is missing or
// has a corrupt end. disk also syncs the directory before the marker of the current MANIFEST is moved: Pebble creates the
// new marker, removes the old one, and syncs once, which assumes that a crash keeps the order of changes to a directory.
type disk struct {
	vfs.FS
	s *Store
}

// markerPrefix begins the names of the empty files that name the current MANIFEST.
const markerPrefix = "marker."

// Unwrap returns the underlying file system, as vfs.Root requires.
func (d disk) Unwrap() vfs.FS { return d.FS }

// Create makes the file durable that a marker names, before it creates the marker.
func (d disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	d.syncMarkerDir(name)
	f, err := d.FS.Create(name, c)
	d.s.check(err)
	return file{f, d.s}, nil
}

// Remove makes the new marker durable before it removes the old one. A missing file isn't a failure of the disk.
func (d disk) Remove(name string) error {
	d.syncMarkerDir(name)
	err := d.FS.Remove(name)
	if !errors.Is(err, fs.ErrNotExist) {
		d.s.check(err)
	}
	return err
}

func (d disk) syncMarkerDir(name string) {
	if strings.HasPrefix(d.PathBase(name), markerPrefix) {
		d.s.check(syncDir(d.FS, d.PathDir(name)))
	}
}

// OpenDir returns a directory whose failed Sync ends the process.
func (d disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	d.s.check(err)
	return file{f, d.s}, nil
}

// Open ends the process if a file of values is missing or has a corrupt end.
func (d disk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.Open(name, opts...)
	if !strings.HasSuffix(name, valuesSuffix) {
		return f, err
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	d.s.check(err)
	r, err := objstorageprovider.NewFileReadable(f, d.FS, objstorageprovider.NewReadaheadConfig(), name)
	if err == nil {
		_, err = blob.NewFileReader(context.Background(), r, blob.FileReaderOptions{})
	}
	if err != nil {
		d.s.fatal(fmt.Errorf("%s: %w", name, err))
	}
	return f, nil
}

// file is a file that Pebble writes, or a directory.
type file struct {
	vfs.File
	s *Store
}

func (f file) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.s.check(err)
	return n, nil
}

func (f file) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(b, at)
	f.s.check(err)
	return n, nil
}

func (f file) Sync() error {
	f.s.check(f.File.Sync())
	return nil
}

func (f file) SyncData() error {
	f.s.check(f.File.SyncData())
	return nil
}

func (f file) SyncTo(n int64) (full bool, _ error) {
	full, err := f.File.SyncTo(n)
	f.s.check(err)
	return full, nil
}

func (f file) Preallocate(offset, n int64) error {
	f.s.check(f.File.Preallocate(offset, n))
	return nil
}
