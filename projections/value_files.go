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

// Values of at least separateBytes, mostly open tasks, are stored in files of values (blob files). A compaction of
// their keys moves only references. So open tasks cost less in compactions (docs/performance.md, Open tasks).
const (
	separateBytes = 256
	// If adjacent keys refer to more files of values than this, a compaction rewrites the values.
	// That bounds the space of values of deleted keys.
	valueFilesReferred = 64
	// Pebble never rewrites a file of values by itself, whatever its garbage. If such a file is corrupt, that panics in
	// a goroutine of Pebble (in v2.1.7 runBlobFileRewriteLocked names no file, and reportCorruption requires one).
	garbageRatioNever = 1.0
)

// valuesSuffix ends the names of files of values.
const valuesSuffix = ".blob"

func (o *Options) values() pebble.ValueSeparationPolicy {
	return pebble.ValueSeparationPolicy{
		Enabled: true, MinimumSize: separateBytes,
		MaxBlobReferenceDepth: cmp.Or(o.valueFiles, valueFilesReferred), TargetGarbageRatio: garbageRatioNever,
	}
}

// checkValues checks that the files of values to which the keys refer exist and have intact ends. Pebble checks only
// the files of keys, and panics when it needs a missing value, perhaps in a compaction at its start. So checkValues
// opens the store for reading first.
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
				// The id is the file's number, since Pebble never rewrites files of values here (garbageRatioNever).
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

// openValues opens a file of values, and checks that its end is intact.
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

// Open stops the store if a file of values is missing or has a corrupt end. Pebble gets an error that isn't a
// corruption error, since it panics at those (in v2.1.7 findOrCreateBlob names no file).
func (d disk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if !strings.HasSuffix(name, valuesSuffix) {
		return d.FS.Open(name, opts...)
	}
	f, err := openValues(d.FS, name, opts...)
	if errors.Is(err, fs.ErrNotExist) || pebble.IsCorruptionError(err) {
		d.s.fail(d.s.corrupt(err))
		err = errors.New(err.Error())
	}
	return f, err
}
