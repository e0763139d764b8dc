package graph

import (
	"cmp"
	"slices"
)

// node is a box before it has a place.
type node struct {
	vertices []int
	rank     int // of its first vertex, by the longest path
	column   int // from 0, without a gap
	width    int
	needs    []int // nodes, ascending
}

// fold makes the nodes of a graph: one for each vertex, or at most about a number of them. Then the widest ranks become
// one node each, as few as it takes. If a path is longer than that, runs of ranks become one node each.
func fold(g *ranked, most int) []node {
	depth := 0
	for _, r := range g.ranks {
		depth = max(depth, r+1)
	}
	folded, run := widest(g, depth, most), 1
	if depth > most {
		run = (depth + most - 1) / most
	}
	var nodes []node
	of, single := make([]int, len(g.vs)), map[int]int{} // the node of a vertex, and of a folded column
	for i, r := range g.ranks {
		column := r / run
		at, is := single[column]
		if !is || run == 1 && !folded[r] {
			at = len(nodes)
			nodes = append(nodes, node{rank: column * run, column: column})
			if run > 1 || folded[r] {
				single[column] = at
			}
		}
		nodes[at].vertices = append(nodes[at].vertices, i)
		of[i] = at
	}
	for i, needs := range g.needs {
		for _, j := range needs {
			if of[i] != of[j] {
				nodes[of[i]].needs = append(nodes[of[i]].needs, of[j])
			}
		}
	}
	for i := range nodes {
		slices.Sort(nodes[i].needs)
		nodes[i].needs = slices.Compact(nodes[i].needs)
		nodes[i].width = boxWidth(g.vs, nodes[i].vertices)
	}
	return nodes
}

// widest returns the ranks to fold so that at most a number of nodes are left.
func widest(g *ranked, depth, most int) map[int]bool {
	sizes, byWidth := make([]int, depth), make([]int, depth)
	for _, r := range g.ranks {
		sizes[r]++
	}
	for r := range byWidth {
		byWidth[r] = r
	}
	slices.SortStableFunc(byWidth, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })
	folded, left := map[int]bool{}, len(g.vs)
	for _, r := range byWidth {
		if left <= most || sizes[r] < 2 {
			break
		}
		folded[r] = true
		left -= sizes[r] - 1
	}
	return folded
}
