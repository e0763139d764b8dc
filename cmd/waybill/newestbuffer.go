package main

import (
	"fmt"
	"io"
	"slices"
)

// newest keeps what a limit shows of a list that is read in another order, and no more than
// twice as much on the way.
type newestBuffer[T any] struct {
	*limit
	instant func(*T) *string // the instant, as events.InstantText writes it
	list    []T
	total   int // that came
}

// add takes one more.
func (n *newestBuffer[T]) add(v T) {
	n.total++
	n.list = append(n.list, v)
	if n.max > 0 && len(n.list) >= 2*n.max {
		n.sort()
	}
}

// sort puts the newest first, and lets go of what isn't shown. Of one instant, those that came
// first come first.
func (n *newestBuffer[T]) sort() {
	slices.SortStableFunc(n.list, func(a, b T) int { return compareInstants(n.instant(&b), n.instant(&a)) })
	if n.max > 0 && len(n.list) > n.max {
		n.list = slices.Delete(n.list, n.max, len(n.list))
	}
}

// shown is the list, and says on note what is left out.
func (n *newestBuffer[T]) newestRows(note io.Writer, what string) []T {
	n.sort()
	if n.total > len(n.list) {
		fmt.Fprintf(note, "%d of %d %s, the newest; --limit 0 shows all\n", len(n.list), n.total, what)
	}
	return n.list
}
