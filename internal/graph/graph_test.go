package graph

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// vertices parses "a b:a c:a,b": steps with their needs.
func vertices(text string) []Vertex {
	var vs []Vertex
	for word := range strings.FieldsSeq(text) {
		id, needs, _ := strings.Cut(word, ":")
		v := Vertex{ID: id, Kind: "call", What: "agent." + id}
		if needs != "" {
			v.Needs = strings.Split(needs, ",")
		}
		vs = append(vs, v)
	}
	return vs
}

// random returns a graph of n steps, each with up to a number of needs among those before it, not farther than reach.
func random(seed uint64, n, needs, reach int) []Vertex {
	rnd := rand.New(rand.NewPCG(seed, 1))
	vs := make([]Vertex, n)
	for i := range vs {
		vs[i] = Vertex{ID: fmt.Sprintf("s%d", i), Kind: "call", What: "agent.do"}
		for range rnd.IntN(needs + 1) {
			if i > 0 {
				vs[i].Needs = append(vs[i].Needs, vs[i-1-rnd.IntN(min(i, reach))].ID)
			}
		}
	}
	return vs
}

// check reports what is wrong with any drawing.
func check(t *testing.T, name string, vs []Vertex, d *Drawing) {
	t.Helper()
	box := map[string]int{}
	for i, b := range d.Boxes {
		for _, id := range b.Steps {
			if _, twice := box[id]; twice {
				t.Errorf("%s: step %s is drawn twice", name, id)
			}
			box[id] = i
		}
		if b.X < 0 || b.Y < 0 || b.X+b.Width > d.Width || b.Y+b.Height > d.Height {
			t.Errorf("%s: box %d is outside of %dx%d: %+v", name, i, d.Width, d.Height, b)
		}
		for j, other := range d.Boxes[:i] {
			if b.X < other.X+other.Width && other.X < b.X+b.Width && b.Y < other.Y+other.Height && other.Y < b.Y+b.Height {
				t.Errorf("%s: boxes %d and %d overlap", name, i, j)
			}
		}
	}
	edges := map[[2]int]bool{}
	for _, e := range d.Edges {
		from, to := &d.Boxes[e.From], &d.Boxes[e.To]
		first, last := e.Points[0], e.Points[len(e.Points)-1]
		if first != [2]int{from.X + from.Width, from.Y + from.Height/2} || last != [2]int{to.X, to.Y + to.Height/2} {
			t.Errorf("%s: edge %+v doesn't join %+v and %+v", name, e, from, to)
		}
		for i := 1; i < len(e.Points); i++ {
			if e.Points[i][0] < e.Points[i-1][0] {
				t.Errorf("%s: edge %+v goes back", name, e)
			}
		}
		if edges[[2]int{e.From, e.To}] {
			t.Errorf("%s: edge %+v is there twice", name, e)
		}
		edges[[2]int{e.From, e.To}] = true
	}
	for i := range vs {
		if _, is := box[vs[i].ID]; !is {
			t.Errorf("%s: step %s isn't drawn", name, vs[i].ID)
		}
		for _, need := range vs[i].Needs {
			from, to := box[need], box[vs[i].ID]
			if from != to && !edges[[2]int{from, to}] && !d.Reduced {
				t.Errorf("%s: no edge from %s to %s", name, need, vs[i].ID)
			}
			if from != to && d.Boxes[from].X >= d.Boxes[to].X {
				t.Errorf("%s: %s isn't to the left of %s", name, need, vs[i].ID)
			}
		}
	}
	if d.Reduced {
		checkReduced(t, name, vs, d, box)
	}
}

// checkReduced reports needs that don't follow from the edges.
func checkReduced(t *testing.T, name string, vs []Vertex, d *Drawing, box map[string]int) {
	t.Helper()
	next := make([][]int, len(d.Boxes))
	for _, e := range d.Edges {
		next[e.From] = append(next[e.From], e.To)
	}
	reached := make([]map[int]bool, len(d.Boxes))
	for i := len(d.Boxes) - 1; i >= 0; i-- { // boxes are in the order of their columns
		reached[i] = map[int]bool{i: true}
		for _, j := range next[i] {
			for k := range reached[j] {
				reached[i][k] = true
			}
		}
	}
	for i := range vs {
		for _, need := range vs[i].Needs {
			if !reached[box[need]][box[vs[i].ID]] {
				t.Errorf("%s: no way from %s to %s", name, need, vs[i].ID)
			}
		}
	}
}

// Small graphs look as a person would draw them: parallel steps above each other, chains on a line.
func TestDrawingOfSmallGraphs(t *testing.T) {
	for _, tt := range []struct{ name, graph, want string }{
		{"one", "a", "a 16,16"},
		{"a chain", "a b:a c:b", "a 16,16; b 196,16; c 376,16"},
		{"a diamond", "a b:a c:a d:b,c", "a 16,52; b 196,16; c 196,88; d 376,52"},
		{"two that cross in the file's order", "a b c:b d:a", "a 16,16; b 16,88; d 196,16; c 196,88"},
		{"no needs", "a b c", "a 16,16; b 16,88; c 16,160"},
		{"a line past a step", "a b:a c:a,b", "a 16,40; b 196,16; c 376,40"},
	} {
		d := Draw(vertices(tt.graph), false)
		check(t, tt.name, vertices(tt.graph), d)
		var got []string
		for _, b := range d.Boxes {
			got = append(got, fmt.Sprintf("%s %d,%d", strings.Join(b.Steps, "+"), b.X, b.Y))
		}
		if strings.Join(got, "; ") != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, strings.Join(got, "; "), tt.want)
		}
	}
}

// A tree is drawn without crossings, whatever the order of its steps.
func TestTreesHaveNoCrossings(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		vs := make([]Vertex, 40)
		for i := range vs {
			vs[i].ID = fmt.Sprint("s", i)
			if i > 0 {
				vs[i].Needs = []string{fmt.Sprint("s", (i-1)/3)}
			}
		}
		rnd.Shuffle(len(vs), func(i, j int) { vs[i], vs[j] = vs[j], vs[i] })
		s := route(fold(rank(vs), MaxBoxes))
		if s.order(); s.crossings() != 0 {
			t.Errorf("seed %d: %d crossings", seed, s.crossings())
		}
	}
}

// crossingsBetween counts what a count of all pairs does.
func TestCrossings(t *testing.T) {
	for seed := range uint64(50) {
		s := route(fold(rank(random(seed, 40, 4, 20)), MaxBoxes))
		want := 0
		for _, c := range s.columns {
			var edges [][2]int
			for _, left := range c.cells {
				for _, right := range left.right {
					edges = append(edges, [2]int{left.at, right.at})
				}
			}
			for i, a := range edges {
				for _, b := range edges[:i] {
					if (a[0]-b[0])*(a[1]-b[1]) < 0 {
						want++
					}
				}
			}
		}
		if got := s.crossings(); got != want {
			t.Errorf("seed %d: %d crossings, want %d", seed, got, want)
		}
		before := s.crossings()
		if s.order(); s.crossings() > before {
			t.Errorf("seed %d: %d crossings became %d", seed, before, s.crossings())
		}
	}
}

// Any graph is drawn whole, without overlaps, and the same again. An unfolded drawing has a box for each step.
func TestRandomGraphs(t *testing.T) {
	for seed := range uint64(60) {
		n := []int{3, 12, 50, 199, 201, 400}[seed%6]
		vs := random(seed, n, []int{1, 2, 5}[seed%3], []int{3, 20, 400}[seed/6%3])
		name := fmt.Sprintf("seed %d, %d steps", seed, n)
		d := Draw(vs, false)
		check(t, name, vs, d)
		if len(d.Boxes) > MaxBoxes || d.Folded != (n > MaxBoxes) {
			t.Errorf("%s: %d boxes, folded: %v", name, len(d.Boxes), d.Folded)
		}
		if again := Draw(slices.Clone(vs), false); !reflect.DeepEqual(d, again) {
			t.Errorf("%s: drawn again it differs", name)
		}
		if n <= 201 {
			unfolded := Draw(vs, true)
			if check(t, name, vs, unfolded); len(unfolded.Boxes) != n || unfolded.Folded {
				t.Errorf("%s: unfolded it has %d boxes", name, len(unfolded.Boxes))
			}
		}
	}
}

// extremes are graphs at the bounds of a definition.
func extremes() map[string][]Vertex {
	chain := make([]Vertex, 1024)
	all := make([]Vertex, 1024)
	for i := range chain {
		chain[i] = Vertex{ID: fmt.Sprint("s", i), Kind: "call"}
		all[i] = chain[i]
		if i > 0 {
			chain[i].Needs = []string{fmt.Sprint("s", i-1)}
		}
		for j := max(0, i-256); j < i; j++ {
			all[i].Needs = append(all[i].Needs, fmt.Sprint("s", j))
		}
	}
	fan := []Vertex{{ID: "first"}}
	last := Vertex{ID: "last"}
	for i := range 256 {
		fan = append(fan, Vertex{ID: fmt.Sprint("w", i), Needs: []string{"first"}})
		last.Needs = append(last.Needs, fmt.Sprint("w", i))
	}
	dense := make([]Vertex, 1024) // four layers, each needing all of the one before
	for i := range dense {
		dense[i] = Vertex{ID: fmt.Sprint("s", i)}
		if layer := i / 256; layer > 0 {
			for j := range 256 {
				dense[i].Needs = append(dense[i].Needs, fmt.Sprint("s", (layer-1)*256+j))
			}
		}
	}
	long := slices.Clone(chain[:512]) // lines from many steps past a chain
	for i := range 256 {
		long = append(long, Vertex{ID: fmt.Sprint("a", i)}, Vertex{ID: fmt.Sprint("b", i), Needs: []string{fmt.Sprint("a", i), "s511"}})
	}
	return map[string][]Vertex{"a chain": chain, "each needs the 256 before it": all, "a fan": append(fan, last), "four dense layers": dense,
		"lines past a chain": long, "random": random(7, 1024, 3, 40), "random, far": random(7, 1024, 3, 1024)}
}

// Graphs at the bounds are drawn, folded to at most MaxBoxes boxes.
func TestExtremeGraphs(t *testing.T) {
	for name, vs := range extremes() {
		d := Draw(vs, false)
		check(t, name, vs, d)
		if len(d.Boxes) > MaxBoxes || !d.Folded {
			t.Errorf("%s: %d boxes", name, len(d.Boxes))
		}
		if unfolded := Draw(vs, true); len(unfolded.Boxes) != len(vs) {
			t.Errorf("%s: unfolded it has %d boxes", name, len(unfolded.Boxes))
		}
	}
}

// A cycle, a need of no step or of itself, and two steps of one name don't stop a drawing.
func TestGraphsThatAreNone(t *testing.T) {
	for _, text := range []string{"a:c b:a c:b", "a:a", "a:nobody b:a", "a:b b:a c:a,b", "a a:a b:a"} {
		d := Draw(vertices(text), false)
		if len(d.Boxes) == 0 || d.Width <= 0 || d.Height <= 0 {
			t.Errorf("%s: %+v", text, d)
		}
		SVG("t", vertices(text), d)
	}
	if d := Draw(nil, false); len(d.Boxes) != 0 || d.Edges == nil || d.Boxes == nil {
		t.Errorf("of no steps: %+v", d)
	}
}

// An SVG is XML that refers to nothing outside, whatever the names of steps are.
func TestSVG(t *testing.T) {
	vs := vertices("a b:a c:a d:b,c")
	vs[1] = Vertex{ID: `<script>alert("x")</script>`, Kind: `x"><script>`, What: "]]>&amp;\x00\xff", Needs: []string{"a"}, Notes: []string{"</style>"}, When: "a < b"}
	vs[2] = Vertex{ID: strings.Repeat("very_long_", 20), Kind: "wait", What: "wait 10m", Needs: []string{"a"}, Pivot: true}
	vs[3].Needs[0] = vs[1].ID
	vs[3].Needs[1] = vs[2].ID
	text := SVG("order/<1>", vs, Draw(vs, false))
	in := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if e, is := token.(xml.StartElement); is {
			if e.Name.Local == "script" || e.Name.Local == "image" || e.Name.Local == "use" {
				t.Errorf("it has a %s", e.Name.Local)
			}
			for _, a := range e.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" || strings.Contains(a.Value, "url(") && a.Value != "url(#head)" {
					t.Errorf("it has %s=%q", a.Name.Local, a.Value)
				}
			}
		}
	}
	for _, want := range []string{"prefers-color-scheme:dark", ">call</tspan>", ">wait</tspan> 10m", `class="box pivot"`, "order/&lt;1&gt;"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func BenchmarkDraw(b *testing.B) {
	all := extremes()
	all["order, 7 steps"] = vertices("a b:a c:a d:b,c e:d f:d g:e,f,a")
	for name, vs := range all {
		for _, unfolded := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/unfolded=%v", name, unfolded), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Draw(vs, unfolded)
				}
			})
		}
	}
}
