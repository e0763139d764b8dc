package replay

import "github.com/waybill-run/waybill/events"

// Pair is a row of two aligned courses: the same event in both, or an event of one of them.
type Pair struct {
	Recorded *events.Line
	Forked   *ForkLine
}

// single returns the event if only one course has it; nil: both have it.
func (p *Pair) single() *events.Line {
	switch {
	case p.Recorded == nil:
		return &p.Forked.Line
	case p.Forked == nil:
		return p.Recorded
	}
	return nil
}

// maxPairs bounds the table that Pairs fills. Longer courses are listed one after the other, from their first
// difference on.
const maxPairs = 4 << 20

// Pairs aligns the courses of a fork so that as many equal events as possible (same type, step and attempt) are in
// one row.
func Pairs(f *Forked) []Pair {
	a, b := f.Recorded, f.Forked
	var rows []Pair
	for len(a) > 0 && len(b) > 0 && sameEvent(&a[0], &b[0]) {
		rows = append(rows, Pair{&a[0], &b[0]})
		a, b = a[1:], b[1:]
	}
	if len(a)*len(b) > maxPairs {
		for i := range a {
			rows = append(rows, Pair{Recorded: &a[i]})
		}
		for i := range b {
			rows = append(rows, Pair{Forked: &b[i]})
		}
		return rows
	}
	return append(rows, align(a, b)...)
}

// align computes the longest common subsequence, with the remaining events around it.
func align(a []events.Line, b []ForkLine) []Pair {
	length := make([][]int32, len(a)+1) // of the longest common subsequence of a[i:] and b[j:]
	for i := range length {
		length[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if sameEvent(&a[i], &b[j]) {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	var rows []Pair
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && sameEvent(&a[i], &b[j]):
			rows = append(rows, Pair{&a[i], &b[j]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && length[i+1][j] >= length[i][j+1]:
			rows = append(rows, Pair{Recorded: &a[i]})
			i++
		default:
			rows = append(rows, Pair{Forked: &b[j]})
			j++
		}
	}
	return rows
}

func sameEvent(a *events.Line, b *ForkLine) bool {
	return a.Type == b.Type && a.Step == b.Step && a.Attempt == b.Attempt
}
