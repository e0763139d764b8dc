package main

import (
	"fmt"
	"io"
	"slices"
)

// newest keeps what a limit shows of a list that is read in another order, and no more than
// twice as much on the way.
type newest[T any] struct {
	*limit
	at   func(*T) *string // the instant, as events.InstantText writes it
	list []T
	all  int // that came
}

// add takes one more.
func (n *newest[T]) add(v T) {
	n.all++
	n.list = append(n.list, v)
	if n.most > 0 && len(n.list) >= 2*n.most {
		n.sort()
	}
}

// sort puts the newest first, and lets go of what isn't shown. Of one instant, those that came
// first come first.
func (n *newest[T]) sort() {
	slices.SortStableFunc(n.list, func(a, b T) int { return compareInstants(n.at(&b), n.at(&a)) })
	if n.most > 0 && len(n.list) > n.most {
		n.list = slices.Delete(n.list, n.most, len(n.list))
	}
}

// shown is the list, and says on note what is left out.
func (n *newest[T]) shown(note io.Writer, what string) []T {
	n.sort()
	if n.all > len(n.list) {
		fmt.Fprintf(note, "%d of %d %s, the newest; --limit 0 shows all\n", len(n.list), n.all, what)
	}
	return n.list
}
