package projections

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
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

// checkValues checks that the files of values exist to which the keys refer. Pebble checks only the files of keys, and
// panics when it needs a missing value, perhaps in a compaction at its start. So checkValues opens the store for reading
// first.
func (s *Store) checkValues(lock *pebble.Lock) error {
	o := s.pebbleOptions(lock, false)
	o.ReadOnly = true
	db, err := pebble.Open(s.dir, o)
	if err != nil {
		return err
	}
	levels, err := db.SSTables()
	seen := map[uint64]bool{}
	for _, level := range levels {
		for i := range level {
			for _, id := range level[i].GetBlobReferenceFiles() {
				if err != nil || seen[uint64(id)] {
					continue
				}
				seen[uint64(id)] = true
				// The id is the file's number, since Pebble never rewrites files of values here (garbageRatioNever).
				_, err = s.o.FS.Stat(s.o.FS.PathJoin(s.dir, fmt.Sprintf("%06d", uint64(id))+valuesSuffix))
			}
		}
	}
	return errors.Join(err, db.Close())
}
