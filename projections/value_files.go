package projections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable/blob"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Values from separateBytes on, most of them of open tasks, are in files of values, and
// a compaction of their keys moves references to them instead: so tasks that wait cost those
// that don't less (docs/performance.md, Open tasks).
const (
	separateBytes = 256
	// Where keys that lie together refer to more files of values than this, a compaction
	// writes the values anew. That bounds what the files hold of tasks that are no more.
	valueFilesReferred = 64
	// Pebble writes no file of values anew by itself, whatever is in it: where such a one is
	// damaged it panics, in a goroutine of its own (in v2.1.7 runBlobFileRewriteLocked names
	// no file, and reportCorruption wants one).
	garbageRatioNever = 1.0
)

// valuesSuffix ends the names of the files that hold values.
const valuesSuffix = ".blob"

func (o *Options) values() pebble.ValueSeparationPolicy {
	return pebble.ValueSeparationPolicy{
		Enabled: true, MinimumSize: separateBytes,
		MaxBlobReferenceDepth: cmp.Or(o.valueFiles, valueFilesReferred), TargetGarbageRatio: garbageRatioNever,
	}
}

// checkValues looks for the files of values that the keys in a directory refer to, and at
// their ends. Pebble looks for those of keys alone, and panics once it wants a value, perhaps
// in a compaction that begins when it opens: so it opens to read first.
func (s *Store) checkValues(lock *pebble.Lock) error {
	o := s.pebbleOptions(lock, false)
	o.ReadOnly = true
	db, err := pebble.Open(s.dir, o)
	if err != nil {
		return s.openError(err)
	}
	levels, err := db.SSTables()
	seen := map[string]bool{}
	for _, level := range levels {
		for i := range level {
			for _, id := range level[i].GetBlobReferenceFiles() {
				// An id is the file's number as long as no file is written anew.
				name := s.o.FS.PathJoin(s.dir, fmt.Sprintf("%06d", uint64(id))+valuesSuffix)
				if err == nil && !seen[name] {
					seen[name] = true
					err = s.checkValuesIn(name)
				}
			}
		}
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return s.openError(err)
	}
	return nil
}

func (s *Store) checkValuesIn(name string) error {
	f, err := openValues(s.o.FS, name)
	if err != nil {
		return err
	}
	return f.Close()
}

// openValues opens a file of values whose end is as it was written.
func openValues(on FS, name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := on.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	r, err := objstorageprovider.NewFileReadable(f, on, objstorageprovider.NewReadaheadConfig(), name)
	if err == nil {
		_, err = blob.NewFileReader(context.Background(), r, blob.FileReaderOptions{})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return f, nil
}

// Open stops the store where a file of values is gone or has a damaged end, as it can be
// while the store is open. To Pebble that is an error of no kind: at one of damage it panics
// (in v2.1.7 findOrCreateBlob names no file).
func (d disk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if !strings.HasSuffix(name, valuesSuffix) {
		return d.FS.Open(name, opts...)
	}
	f, err := openValues(d.FS, name, opts...)
	if errors.Is(err, fs.ErrNotExist) || pebble.IsCorruptionError(err) {
		d.s.fail(d.s.damaged(err))
		err = errors.New(err.Error())
	}
	return f, err
}
