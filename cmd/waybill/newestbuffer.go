package main

import (
	"fmt"
	"io"
	"slices"
)

// newestBuffer keeps the newest entries up to --limit of a list that arrives in another order. It holds at most
// twice the limit.
type newestBuffer[T any] struct {
	*limit
	instant func(*T) *string // the instant, as events.InstantText writes it
	list    []T
	total   int // number of entries added
}

// add adds an entry.
func (n *newestBuffer[T]) add(v T) {
	n.total++
	n.list = append(n.list, v)
	if n.max > 0 && len(n.list) >= 2*n.max {
		n.sort()
	}
}

// sort orders the entries newest first, and drops those beyond the limit. Entries of the same instant keep
// their order.
func (n *newestBuffer[T]) sort() {
	slices.SortStableFunc(n.list, func(a, b T) int { return compareInstants(n.instant(&b), n.instant(&a)) })
	if n.max > 0 && len(n.list) > n.max {
		n.list = slices.Delete(n.list, n.max, len(n.list))
	}
}

// newestRows returns the entries, and prints how many were dropped.
func (n *newestBuffer[T]) newestRows(note io.Writer, what string) []T {
	n.sort()
	if n.total > len(n.list) {
		fmt.Fprintf(note, "%d of %d %s, the newest; --limit 0 shows all\n", len(n.list), n.total, what)
	}
	return n.list
}
