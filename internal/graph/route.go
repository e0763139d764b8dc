package graph

// maxBends bounds the bends of all lines.
const maxBends = 2000

// sketch is a drawing in the making.
type sketch struct {
	columns []column
	lines   []line
	reduced bool
}

// column is the cells of a rank, from top to bottom.
type column struct {
	cells    []*cell
	x, width int
}

// cell is a box, or the bend of lines that pass a column.
type cell struct {
	box    int // -1: a bend
	column int
	at     int // its index in its column
	center int // its height, times unit
	left   []*cell
	right  []*cell
}

// line is an edge between boxes, with its bends.
type line struct {
	from, to int // nodes
	cells    []*cell
}

// route gives each node a cell, and each line that passes columns a bend in each of them.
func route(nodes []node) *sketch {
	s := &sketch{}
	for i := range nodes {
		for len(s.columns) <= nodes[i].column {
			s.columns = append(s.columns, column{width: boxMinWidth})
		}
	}
	needs := make([][]int, len(nodes))
	for i := range nodes {
		needs[i] = nodes[i].needs
	}
	bent := countBends(nodes, needs) <= maxBends
	if !bent {
		needs, s.reduced = reduce(nodes), true
		bent = countBends(nodes, needs) <= maxBends
	}
	boxes := make([]*cell, len(nodes))
	for i := range nodes {
		boxes[i] = s.add(nodes[i].column, i)
		s.columns[nodes[i].column].width = max(s.columns[nodes[i].column].width, nodes[i].width)
	}
	trunks := make([][]*cell, len(nodes)) // the bends of the lines from a node, by column
	for to := range nodes {
		for _, from := range needs[to] {
			l := line{from: from, to: to, cells: []*cell{boxes[from]}}
			span := nodes[to].column - nodes[from].column - 1
			if bent {
				for len(trunks[from]) < span {
					trunks[from] = append(trunks[from], s.add(nodes[from].column+1+len(trunks[from]), -1))
				}
				l.cells = append(l.cells, trunks[from][:span]...)
			}
			l.cells = append(l.cells, boxes[to])
			s.lines = append(s.lines, l)
		}
	}
	for _, l := range s.lines {
		if !bent && nodes[l.to].column-nodes[l.from].column > 1 {
			continue // it goes straight through, and orders nothing
		}
		for i, c := range l.cells[1:] {
			join(l.cells[i], c)
		}
	}
	return s
}

func (s *sketch) add(in, box int) *cell {
	c := &cell{box: box, column: in, at: len(s.columns[in].cells)}
	s.columns[in].cells = append(s.columns[in].cells, c)
	return c
}

// join makes two cells neighbours. Lines that share bends join them once.
func join(left, right *cell) {
	for _, c := range right.left {
		if c == left {
			return
		}
	}
	left.right, right.left = append(left.right, right), append(right.left, left)
}

// countBends counts the bends that lines need, if those from one node share theirs.
func countBends(nodes []node, needs [][]int) int {
	farthest := make([]int, len(nodes))
	for to := range nodes {
		for _, from := range needs[to] {
			farthest[from] = max(farthest[from], nodes[to].column-nodes[from].column-1)
		}
	}
	n := 0
	for _, span := range farthest {
		n += span
	}
	return n
}

// reduce returns the needs without those that follow from others: the transitive reduction.
func reduce(nodes []node) [][]int {
	order := make([][]int, 0) // nodes by column, so that needs come first
	for i := range nodes {
		for len(order) <= nodes[i].column {
			order = append(order, nil)
		}
		order[nodes[i].column] = append(order[nodes[i].column], i)
	}
	words := (len(nodes) + 63) / 64
	before := make([][]uint64, len(nodes)) // all that a node needs, at any distance
	reduced := make([][]int, len(nodes))
	for _, column := range order {
		for _, i := range column {
			before[i] = make([]uint64, words)
			all := make([]uint64, words) // what the needs need
			for _, n := range nodes[i].needs {
				for w, bits := range before[n] {
					all[w] |= bits
				}
			}
			for _, n := range nodes[i].needs {
				if all[n/64]&(1<<(n%64)) == 0 {
					reduced[i] = append(reduced[i], n)
				}
			}
			copy(before[i], all)
			for _, n := range nodes[i].needs {
				before[i][n/64] |= 1 << (n % 64)
			}
		}
	}
	return reduced
}
