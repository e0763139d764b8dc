package graph

const (
	unit        = 16 // of a cell's center: a pixel is 16 units
	placeSweeps = 8
	// A line that goes on from bend to bend is kept straight rather than a box in the middle of its neighbours.
	bendWeight = 8
)

func (c *cell) height() int {
	if c.box < 0 {
		return bendHeight
	}
	return boxHeight
}

// top returns the upper side of a cell, in pixels.
func (c *cell) top() int { return c.middle() - c.height()/2 }

// middle returns the center of a cell, in pixels.
func (c *cell) middle() int { return c.center / unit }

// distance returns how far the centers of two cells, the one below the other, must be apart.
func distance(above, below *cell) int {
	return ((above.height()+below.height())/2 + rowGap) * unit
}

// place gives the cells their heights, and the columns their places.
func (s *sketch) place() {
	x := margin
	for i := range s.columns {
		c := &s.columns[i]
		c.x = x
		x += c.width + columnGap
		center := 0
		for j, cell := range c.cells {
			if j > 0 {
				center += distance(c.cells[j-1], cell)
			}
			cell.center = center
		}
	}
	for sweep := range placeSweeps {
		if sweep%2 == 0 {
			for i := range s.columns {
				s.columns[i].alignCells(func(c *cell) []*cell { return c.left })
			}
		} else {
			for i := len(s.columns) - 1; i >= 0; i-- {
				s.columns[i].alignCells(func(c *cell) []*cell { return c.right })
			}
		}
	}
	least := 0
	first := true
	for i := range s.columns {
		for _, c := range s.columns[i].cells {
			if top := c.center - c.height()*unit/2; first || top < least {
				least, first = top, false
			}
		}
	}
	for i := range s.columns {
		for _, c := range s.columns[i].cells {
			c.center += margin*unit - least
		}
	}
}

// block is a run of cells that stand as near to each other as they may.
type block struct {
	sum, weight int // of the heights that they want, less their distance from the block's first cell
	cells       int
}

// alignCells moves the cells of a column as near as possible to the mean height of their neighbours on one side, by least
// squares, in their order and with their distances. It pools violators (isotonic regression).
func (c *column) alignCells(side func(*cell) []*cell) {
	blocks, offsets, offset := make([]block, 0, len(c.cells)), make([]int, len(c.cells)), 0
	for i, x := range c.cells {
		if i > 0 {
			offset += distance(c.cells[i-1], x)
		}
		offsets[i] = offset
		want, weight := x.desiredCenter(side(x))
		b := block{(want - offset) * weight, weight, 1}
		for len(blocks) > 0 {
			last := blocks[len(blocks)-1]
			if last.sum*b.weight <= b.sum*last.weight { // the one above wants to be above
				break
			}
			b = block{last.sum + b.sum, last.weight + b.weight, last.cells + b.cells}
			blocks = blocks[:len(blocks)-1]
		}
		blocks = append(blocks, b)
	}
	at := 0
	for _, b := range blocks {
		for range b.cells {
			c.cells[at].center = floorDiv(b.sum, b.weight) + offsets[at]
			at++
		}
	}
}

// desiredCenter returns the height that is best for a cell, and its weight.
func (c *cell) desiredCenter(near []*cell) (center, weight int) {
	if len(near) == 0 {
		return c.center, 1
	}
	weight = 2
	for _, n := range near {
		center += n.center
		if c.box < 0 && n.box < 0 {
			weight = bendWeight
		}
	}
	return floorDiv(center, len(near)), weight
}

func floorDiv(a, b int) int {
	q := a / b
	if a%b != 0 && a < 0 {
		q--
	}
	return q
}

// points returns the points of a line. It passes a column at one height.
func (s *sketch) points(l line) [][2]int {
	first, last := l.cells[0], l.cells[len(l.cells)-1]
	from := &s.columns[first.column]
	points := [][2]int{{from.x + from.width, first.middle()}}
	for _, bend := range l.cells[1 : len(l.cells)-1] {
		in := &s.columns[bend.column]
		points = append(points, [2]int{in.x, bend.middle()}, [2]int{in.x + in.width, bend.middle()})
	}
	return append(points, [2]int{s.columns[last.column].x, last.middle()})
}

func (s *sketch) size() (width, height int) {
	for i := range s.columns {
		c := &s.columns[i]
		width = c.x + c.width + margin
		for _, x := range c.cells {
			height = max(height, x.top()+x.height()+margin)
		}
	}
	return width, height
}
