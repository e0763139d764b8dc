package projections

import (
	"slices"

	"github.com/waybill-run/waybill/events"
)

// A list by a prefix of the id is a range of the rows, whose keys are ordered by id. No facet of the index is: those
// are ordered by submission. So such a list is in the order of ids, it begins with one seek, and it reads the rows
// that have the prefix. The other conditions are checked on each row. Its places have no instant.

// rowIterator iterates over the tasks whose id begins with a prefix, by id.
type rowIterator struct {
	iterator
	from   *indexReader
	prefix string
	key    []byte
}

func (s *indexReader) rowIterator(prefix string) indexIterator {
	lower := s.keys.key(kindRow, prefix)
	return &rowIterator{iterator: s.iterator(lower, afterPrefix(lower)), from: s, prefix: prefix}
}

// afterPrefix returns the least key above all keys that begin with a prefix. The first byte of a prefix isn't 0xff.
func afterPrefix(prefix []byte) []byte {
	upper := slices.Clone(prefix)
	for upper[len(upper)-1] == 0xff {
		upper = upper[:len(upper)-1]
	}
	upper[len(upper)-1]++
	return upper
}

func (r *rowIterator) seek(c Cursor) (Cursor, bool, error) {
	if err := r.from.countLooks(1); err != nil {
		return c, false, err
	}
	r.key = r.from.keys.appendKey(r.key[:0], kindRow, max(c.Task, r.prefix))
	if !r.seekGE(r.key) {
		return c, false, nil
	}
	return Cursor{Task: r.rest()}, true, nil
}

// fromID returns the first place after a cursor of a list by id.
func (f *Filter) fromID(after Cursor) Cursor {
	if after == (Cursor{}) {
		return Cursor{Task: f.IDPrefix}
	}
	return Cursor{Task: max(after.Task+"\x00", f.IDPrefix)}
}

// cursorOf returns the place of a task in the list.
func (f *Filter) cursorOf(s *events.Summary) Cursor {
	if f.IDPrefix != "" {
		return Cursor{Task: s.ID}
	}
	return cursorOf(s)
}

// matchesRow checks the conditions that the index checks if a list isn't by id.
func (f *Filter) matchesRow(s *events.Summary) bool {
	for k, v := range f.Labels {
		if got, ok := s.Labels[k]; !ok || got != v {
			return false
		}
	}
	submitted := cursorOf(s).Submitted
	return (f.Parent == "" || s.Parent == f.Parent) && (len(f.States) == 0 || slices.Contains(f.States, s.State)) &&
		(f.Workflow == "" || s.Workflow == f.Workflow && (f.Version == 0 || s.Version == f.Version)) &&
		(f.StepInError == "" || slices.Contains(s.InError(), f.StepInError)) &&
		(f.Agent == "" || s.Open() && slices.Contains(s.WaitingFor(), f.Agent)) &&
		(f.Since.IsZero() || submitted >= ceilMillis(f.Since)) && (f.Until.IsZero() || submitted < ceilMillis(f.Until)) &&
		(f.DueBefore.IsZero() || s.Open())
}

// matchesGroup checks the error group of a row, if the list is by id.
func (f *Filter) matchesGroup(r reader, s *events.Summary) bool {
	return f.IDPrefix == "" && f.Parent == "" || f.ErrorGroup == "" || r.groupOf(s) == f.ErrorGroup
}
