package projections

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk stands between Pebble and the file system for two things that Pebble
// takes for granted: that a file system keeps the order of changes to a
// directory over a crash, and that the process may end when a directory can't
// be synced (vfs/atomicfs, Marker.Move panics).
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

// Create puts what a marker names on disk before the marker.
func (d disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.settle(name); err != nil {
		return nil, err
	}
	return d.FS.Create(name, c)
}

// Remove puts the marker that replaces another on disk before that goes.
func (d disk) Remove(name string) error {
	if err := d.settle(name); err != nil {
		return err
	}
	return d.FS.Remove(name)
}

func (d disk) settle(name string) error {
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

// Sync never fails for Pebble. After one that did nothing is said to be
// flushed: the store has stopped.
func (d directory) Sync() error {
	if err := d.File.Sync(); err != nil {
		d.s.fail(fmt.Errorf("projections: sync %s: %w; see to the disk, then start again: nothing is lost, the log is replayed", d.name, err))
	}
	return nil
}
