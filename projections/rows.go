package projections

import (
	"context"
	"strings"

	"github.com/waybill-run/waybill/events"
)

// rowsBetweenChecks is the number of rows after which Rows checks its context.
const rowsBetweenChecks = 1000

// Rows calls fn with the head of the row of every task of a partition, in the order of ids, until fn returns an error. row
// decodes the whole row; it is valid until fn returns. Rows reads what was saved, on one snapshot, and may be called from several goroutines.
// next is the offset below which the rows reflect the partition.
func (s *Store) Rows(ctx context.Context, p int32, fn func(head *events.SummaryHead, row func() *events.Summary) error) (next int64, err error) {
	asOf, failed := s.onSnapshot(ViewTimelines, p, func(r reader) { err = r.rows(ctx, fn) })
	if failed != nil {
		return 0, failed
	}
	return asOf.Next, err
}

func (r reader) rows(ctx context.Context, fn func(*events.SummaryHead, func() *events.Summary) error) error {
	it := r.iterator(r.keys.bounds(kindRow))
	defer it.close()
	row := func() *events.Summary {
		whole, err := events.DecodeSummary(it.value())
		if err != nil {
			r.corrupt(kindRow, it.rest(), err)
		}
		return whole
	}
	n := 0
	for ok := it.first(); ok; ok = it.next() {
		if n++; n%rowsBetweenChecks == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		head, err := events.DecodeSummaryHead(it.value())
		if err != nil {
			r.corrupt(kindRow, it.rest(), err)
		}
		if err := fn(&head, row); err != nil {
			return err
		}
	}
	return nil
}

// Matches checks a row that isn't in the index, such as that of a task at an earlier time. It doesn't check ErrorGroup.
func (f *Filter) Matches(s *events.Summary) bool {
	return (f.Parent != "" || !s.Hidden()) && strings.HasPrefix(s.ID, f.IDPrefix) && f.matchesRow(s) && (f.DueBefore.IsZero() || !s.CompleteBy.IsZero() && s.CompleteBy.Before(f.DueBefore))
}
