package verify

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// byOffset has the same entries as a map, in the order of offsets.
func TestByOffsetIsAMap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	is, want := newByOffset[int](), map[int64]*int{}
	for range 100_000 {
		offset := rnd.Int64N(6*pageLen) + rnd.Int64N(2)<<40
		switch x := new(int); rnd.IntN(5) {
		case 0, 1:
			is.put(offset, x)
			want[offset] = x
		case 2, 3:
			if got := is.remove(offset); got != want[offset] {
				t.Fatalf("took %p of offset %d, want %p", got, offset, want[offset])
			}
			delete(want, offset)
		default:
			if got := is.get(offset); got != want[offset] {
				t.Fatalf("%p of offset %d, want %p", got, offset, want[offset])
			}
		}
		if is.len() != len(want) {
			t.Fatalf("%d are kept, want %d", is.len(), len(want))
		}
	}
	var order []int64
	for offset, x := range is.all() {
		if x != want[offset] {
			t.Fatalf("gave %p of offset %d, want %p", x, offset, want[offset])
		}
		order = append(order, offset)
		is.remove(offset)
	}
	if !slices.Equal(order, slices.Sorted(maps.Keys(want))) {
		t.Errorf("gave the offsets %v of %v", order, slices.Sorted(maps.Keys(want)))
	}
	if is.len() != 0 || len(is.pages) != 0 {
		t.Errorf("%d are left, in %d pages", is.len(), len(is.pages))
	}
}

// len returns the number of entries.
func (b *byOffset[T]) len() int { return b.kept }
