package graph

import (
	"cmp"
	"slices"
)

// orderSweeps is the number of sweeps over the columns that reduce crossings.
const orderSweeps = 8

// order orders the cells of each column, so that few lines cross.
func (s *sketch) order() {
	best := s.save()
	fewest := s.crossings()
	for sweep := 0; sweep < orderSweeps && fewest > 0; sweep++ {
		if sweep%2 == 0 {
			for i := 1; i < len(s.columns); i++ {
				s.columns[i].sortBy(func(c *cell) []*cell { return c.left })
			}
		} else {
			for i := len(s.columns) - 2; i >= 0; i-- {
				s.columns[i].sortBy(func(c *cell) []*cell { return c.right })
			}
		}
		if n := s.crossings(); n < fewest {
			best, fewest = s.save(), n
		}
	}
	for i := range s.columns {
		s.columns[i].cells = best[i]
		s.columns[i].number()
	}
}

func (s *sketch) save() [][]*cell {
	all := make([][]*cell, len(s.columns))
	for i := range s.columns {
		all[i] = slices.Clone(s.columns[i].cells)
	}
	return all
}

func (c *column) number() {
	for i, x := range c.cells {
		x.at = i
	}
}

// sortBy orders the cells by the mean place of their neighbours on one side. A cell without neighbours stays.
func (c *column) sortBy(side func(*cell) []*cell) {
	const fine = 1024
	type keyed struct {
		cell *cell
		key  int
	}
	list := make([]keyed, len(c.cells))
	for i, x := range c.cells {
		list[i] = keyed{x, x.at * fine}
		if near := side(x); len(near) > 0 {
			sum := 0
			for _, n := range near {
				sum += n.at
			}
			list[i].key = sum * fine / len(near)
		}
	}
	slices.SortStableFunc(list, func(a, b keyed) int { return cmp.Compare(a.key, b.key) })
	for i := range list {
		c.cells[i] = list[i].cell
	}
	c.number()
}

// crossings counts the pairs of lines that cross between neighbouring columns.
func (s *sketch) crossings() (n int) {
	for i := 0; i+1 < len(s.columns); i++ {
		n += crossingsBetween(s.columns[i].cells, len(s.columns[i+1].cells))
	}
	return n
}

// crossingsBetween counts inversions with a tree of sums (Barth, Mutzel and Jünger, "Simple and Efficient Bilayer Cross
// Counting", 2002). right is the number of cells of the column on the right.
func crossingsBetween(left []*cell, right int) (n int) {
	sums, total := make([]int, right+1), 0 // a Fenwick tree of the lines that end at each cell
	var ends []int
	for _, c := range left {
		ends = ends[:0]
		for _, r := range c.right {
			ends = append(ends, r.at)
		}
		for _, at := range ends {
			upTo := 0
			for i := at + 1; i > 0; i -= i & -i {
				upTo += sums[i]
			}
			n += total - upTo
		}
		for _, at := range ends {
			for i := at + 1; i <= right; i += i & -i {
				sums[i]++
			}
		}
		total += len(ends)
	}
	return n
}
