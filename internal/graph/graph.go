package graph

import (
	"slices"
	"unicode/utf8"
)

// The bounds of a drawing.
const (
	MaxBoxes    = 200  // past it, ranks are folded
	MaxUnfolded = 1024 // past it, ranks are folded even in an unfolded drawing
)

// Vertex is a step.
type Vertex struct {
	ID    string   `json:"id" jsonschema:"The step."`
	Kind  string   `json:"kind" jsonschema:"The kind of the step: call, wait, signal, workflow or items. Later builds may add kinds."`
	Needs []string `json:"needs" jsonschema:"The steps that must end before it starts."`
	What  string   `json:"what" jsonschema:"What the step does, for people."`
	Notes []string `json:"notes,omitempty" jsonschema:"More about the step, for people. Absent: nothing."`
	When  string   `json:"when,omitempty" jsonschema:"The condition on which the step runs. Absent: it always runs, or the graph is that of a task, whose plan has no conditions."`
	Undo  bool     `json:"undo,omitempty" jsonschema:"true: the step can be undone."`
	Pivot bool     `json:"pivot,omitempty" jsonschema:"true: once the step is completed, the task isn't undone after a failure."`
}

// Drawing is a drawn graph.
type Drawing struct {
	Width   int    `json:"width" jsonschema:"The width, in CSS pixels."`
	Height  int    `json:"height" jsonschema:"The height, in CSS pixels."`
	Folded  bool   `json:"folded,omitempty" jsonschema:"true: some boxes stand for several steps."`
	Reduced bool   `json:"reduced,omitempty" jsonschema:"true: edges that follow from others are left out, since there are too many."`
	Boxes   []Box  `json:"boxes" jsonschema:"The boxes, by rank and from top to bottom."`
	Edges   []Edge `json:"edges" jsonschema:"The edges."`
}

// Box is one step, or several ones that are folded.
type Box struct {
	Steps  []string `json:"steps" jsonschema:"The steps, in the order of the definition. More than one: they are folded."`
	Rank   int      `json:"rank" jsonschema:"The column, from 0. Of folded ranks: the first."`
	X      int      `json:"x" jsonschema:"The left side."`
	Y      int      `json:"y" jsonschema:"The upper side."`
	Width  int      `json:"width" jsonschema:"The width."`
	Height int      `json:"height" jsonschema:"The height."`
}

// Edge is a line from a box to one that needs it.
type Edge struct {
	From   int      `json:"from" jsonschema:"The index of a box in boxes."`
	To     int      `json:"to" jsonschema:"The index of a box in boxes that needs it."`
	Points [][2]int `json:"points" jsonschema:"The points of the line, each an x and a y. The first is on the right side of the box from, the last on the left side of the box to."`
}

// The measures of a drawing, in CSS pixels.
const (
	boxHeight   = 52
	boxMinWidth = 120
	boxMaxWidth = 240
	glyphWidth  = 8 // of a text in a box, at most on average
	boxPadding  = 28
	columnGap   = 56
	rowGap      = 20
	bendHeight  = 4 // room that a passing line takes
	margin      = 16
)

// Draw draws a graph. unfolded gives each step a box of its own, up to MaxUnfolded steps.
func Draw(vs []Vertex, unfolded bool) *Drawing {
	most := MaxBoxes
	if unfolded {
		most = MaxUnfolded
	}
	g := rank(vs)
	boxes := fold(g, most)
	d := &Drawing{Folded: len(boxes) < len(vs), Boxes: make([]Box, 0, len(boxes)), Edges: []Edge{}}
	s := route(boxes)
	d.Reduced = s.reduced
	s.order()
	s.place()
	at := make([]int, len(boxes)) // in d.Boxes
	for _, column := range s.columns {
		for _, c := range column.cells {
			if c.box < 0 {
				continue
			}
			b := Box{Rank: boxes[c.box].rank, X: column.x, Y: c.top(), Width: column.width, Height: boxHeight}
			for _, v := range boxes[c.box].vertices {
				b.Steps = append(b.Steps, vs[v].ID)
			}
			at[c.box] = len(d.Boxes)
			d.Boxes = append(d.Boxes, b)
		}
	}
	for _, l := range s.lines {
		d.Edges = append(d.Edges, Edge{From: at[l.from], To: at[l.to], Points: s.points(l)})
	}
	slices.SortFunc(d.Edges, compareEdges)
	d.Width, d.Height = s.size()
	return d
}

func compareEdges(a, b Edge) int {
	if a.From != b.From {
		return a.From - b.From
	}
	return a.To - b.To
}

// boxWidth returns the width that a box of these steps needs.
func boxWidth(vs []Vertex, vertices []int) int {
	if len(vertices) > 1 {
		return boxMinWidth
	}
	v := &vs[vertices[0]]
	n := max(utf8.RuneCountInString(v.ID), utf8.RuneCountInString(v.caption()))
	return min(max(n*glyphWidth+boxPadding, boxMinWidth), boxMaxWidth)
}
