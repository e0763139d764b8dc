// Package graph draws the graph of a workflow's steps: it gives each step a place and each need a line. The same drawing
// is served to the console's page as coordinates and written as an SVG. It does no I/O, and the same input gives the
// same drawing on every machine: all coordinates are integers.
//
// # The drawing
//
// Draw lays the graph out in layers, from left to right (Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of
// Hierarchical System Structures", 1981):
//
//	ranks   the longest path to a step is its column                                     (rank.go)
//	fold    past MaxBoxes, the widest ranks become one box each, then runs of ranks do    (fold.go)
//	route   a line that passes columns gets a bend in each; lines from one box share them (route.go)
//	order   within a column by the mean place of the neighbours, to and fro for a fixed number of sweeps; the order with
//	        the fewest crossings wins                                                     (order.go)
//	place   each box as near to the mean height of its neighbours as the order allows     (place.go)
//
// # Bounds
//
// Needs can be many: a step may have 256. If routing takes more than maxBends, lines that follow from others are left out
// (Drawing.Reduced), and if that isn't enough, lines go straight. So the work is bounded for every graph. A graph with a
// cycle, which no valid definition has, is drawn without the needs that close it.
package graph
