package verify

import (
	"iter"
	"maps"
	"slices"
)

// byOffset maps offsets of a partition to values. Consecutive lookups are usually close together, so the page of the
// previous lookup is checked first.
type byOffset[T any] struct {
	pages map[int64]*page[T] // by number
	last  *page[T]           // the page of the last lookup, if there was one
	kept  int
}

const (
	pageBits = 7 // a page has 2^pageBits offsets
	pageLen  = 1 << pageBits
)

type page[T any] struct {
	number int64 // the upper bits of its offsets
	used   int
	at     [pageLen]*T
}

func newByOffset[T any]() byOffset[T] { return byOffset[T]{pages: map[int64]*page[T]{}} }

func (b *byOffset[T]) page(offset int64) *page[T] {
	number := offset >> pageBits
	if b.last == nil || b.last.number != number {
		b.last = b.pages[number]
	}
	return b.last
}

// get returns the value of an offset, or nil.
func (b *byOffset[T]) get(offset int64) *T {
	if pg := b.page(offset); pg != nil {
		return pg.at[offset&(pageLen-1)]
	}
	return nil
}

// put sets the value of an offset.
func (b *byOffset[T]) put(offset int64, x *T) {
	pg := b.page(offset)
	if pg == nil {
		pg = &page[T]{number: offset >> pageBits}
		b.pages[pg.number], b.last = pg, pg
	}
	slot := &pg.at[offset&(pageLen-1)]
	if *slot == nil {
		pg.used, b.kept = pg.used+1, b.kept+1
	}
	*slot = x
}

// remove returns the value of an offset, or nil, and removes it.
func (b *byOffset[T]) remove(offset int64) *T {
	x := b.get(offset)
	if x == nil {
		return nil
	}
	pg := b.last
	pg.at[offset&(pageLen-1)] = nil
	pg.used, b.kept = pg.used-1, b.kept-1
	if pg.used == 0 {
		delete(b.pages, pg.number)
		b.last = nil
	}
	return x
}

// all iterates over the values in the order of their offsets. Values that were yielded may be removed meanwhile.
func (b *byOffset[T]) all() iter.Seq2[int64, *T] {
	return func(yield func(int64, *T) bool) {
		for _, number := range slices.Sorted(maps.Keys(b.pages)) {
			for i, x := range b.pages[number].at {
				if x != nil && !yield(number<<pageBits|int64(i), x) {
					return
				}
			}
		}
	}
}
