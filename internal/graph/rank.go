package graph

import "slices"

// ranked is a graph without cycles, with the rank of each vertex.
type ranked struct {
	vs    []Vertex
	needs [][]int // ascending, each once
	ranks []int   // the number of vertices before it on the longest path
}

// rank reads the needs. It leaves out those that name no vertex, and those that close a cycle.
func rank(vs []Vertex) *ranked {
	g := &ranked{vs: vs, needs: make([][]int, len(vs)), ranks: make([]int, len(vs))}
	at := make(map[string]int, len(vs))
	for i := range vs {
		at[vs[i].ID] = i
	}
	const (
		unseen = iota
		open   // on the path to the present vertex
		done
	)
	seen := make([]uint8, len(vs))
	var visit func(i int)
	visit = func(i int) {
		seen[i] = open
		for _, id := range vs[i].Needs {
			j, ok := at[id]
			if !ok || seen[j] == open {
				continue
			}
			if seen[j] == unseen {
				visit(j)
			}
			g.needs[i] = append(g.needs[i], j)
			g.ranks[i] = max(g.ranks[i], g.ranks[j]+1)
		}
		slices.Sort(g.needs[i])
		g.needs[i] = slices.Compact(g.needs[i])
		seen[i] = done
	}
	for i := range vs {
		if seen[i] == unseen {
			visit(i)
		}
	}
	return g
}
