package graph

import (
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"
)

// style is the look of an SVG. It follows the reader's setting of light and dark.
const style = `
svg{--ground:#fff;--box:#fff;--line:#8a94a3;--text:#1c2430;--quiet:#5a6472;--call:#2563a8;--wait:#8a5a00;--signal:#7b3fa0;--other:#4c5563}
@media (prefers-color-scheme:dark){svg{--ground:#14181f;--box:#1d232c;--line:#76808f;--text:#e8ecf2;--quiet:#a9b3c1;--call:#7ab3f0;--wait:#e0b04a;--signal:#c995ea;--other:#a3adba}}
.ground{fill:var(--ground)}.line{fill:none;stroke:var(--line);stroke-width:1.5}.head{fill:var(--line)}
.box{fill:var(--box);stroke:var(--kind);stroke-width:1.5}.pivot{stroke-width:3}.stack{fill:var(--box);stroke:var(--kind)}
.call{--kind:var(--call)}.wait{--kind:var(--wait)}.signal{--kind:var(--signal)}.other{--kind:var(--other)}
text{font:12px system-ui,sans-serif;fill:var(--quiet)}.id{font-weight:600;font-size:13px;fill:var(--text)}.kind{fill:var(--kind)}
`

// SVG writes a drawing of a graph as an SVG document, which needs nothing else. It shows each step with its kind; the
// rest is in its tooltip.
func SVG(title string, vs []Vertex, d *Drawing) string {
	at := make(map[string]*Vertex, len(vs))
	for i := range vs {
		at[vs[i].ID] = &vs[i]
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", d.Width, d.Height, d.Width, d.Height)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n", escape(title), style)
	b.WriteString(`<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>` + "\n")
	fmt.Fprintf(&b, `<rect class="ground" width="%d" height="%d"/>`+"\n", d.Width, d.Height)
	for _, e := range d.Edges {
		fmt.Fprintf(&b, `<path class="line" marker-end="url(#head)" d="%s"/>`+"\n", curve(e.Points))
	}
	for i := range d.Boxes {
		writeBox(&b, &d.Boxes[i], at)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// curve returns the path of a line: straight through columns, and bent between them.
func curve(points [][2]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%d %d", points[0][0], points[0][1])
	for i, p := range points[1:] {
		from := points[i]
		if from[1] == p[1] {
			fmt.Fprintf(&b, "H%d", p[0])
			continue
		}
		middle := (from[0] + p[0]) / 2
		fmt.Fprintf(&b, "C%d %d %d %d %d %d", middle, from[1], middle, p[1], p[0], p[1])
	}
	return b.String()
}

func writeBox(b *strings.Builder, box *Box, at map[string]*Vertex) {
	x, y := box.X, box.Y
	if len(box.Steps) > 1 {
		fmt.Fprintf(b, `<g class="other"><title>%s</title>`, escape(strings.Join(box.Steps, "\n")))
		fmt.Fprintf(b, `<rect class="stack" x="%d" y="%d" width="%d" height="%d" rx="6"/>`, x+5, y+5, box.Width, box.Height)
		fmt.Fprintf(b, `<rect class="box" x="%d" y="%d" width="%d" height="%d" rx="6"/>`, x, y, box.Width, box.Height)
		fmt.Fprintf(b, `<text class="id" x="%d" y="%d">%d steps</text></g>`+"\n", x+boxPadding/2, y+box.Height/2+5, len(box.Steps))
		return
	}
	v := at[box.Steps[0]]
	class, radius := "other", 26
	switch v.Kind {
	case "call":
		class, radius = v.Kind, 6
	case "wait", "signal":
		class = v.Kind
	}
	pivot := ""
	if v.Pivot {
		pivot = " pivot"
	}
	fmt.Fprintf(b, `<g class="%s"><title>%s</title>`, class, escape(v.tooltip()))
	fmt.Fprintf(b, `<rect class="box%s" x="%d" y="%d" width="%d" height="%d" rx="%d"/>`, pivot, x, y, box.Width, box.Height, radius)
	most := (box.Width - boxPadding) / (glyphWidth - 1)
	kind, rest := v.Kind, strings.TrimPrefix(v.caption(), v.Kind)
	fmt.Fprintf(b, `<text class="id" x="%d" y="%d">%s</text>`, x+boxPadding/2, y+22, escape(cut(v.ID, most)))
	fmt.Fprintf(b, `<text x="%d" y="%d"><tspan class="kind">%s</tspan>%s</text></g>`+"\n", x+boxPadding/2, y+40, escape(kind), escape(cut(rest, most-len(kind))))
}

// caption returns the kind of a step and what it does.
func (v *Vertex) caption() string {
	if v.What == v.Kind || strings.HasPrefix(v.What, v.Kind+" ") {
		return v.What
	}
	return strings.TrimSuffix(v.Kind+" "+v.What, " ")
}

// tooltip returns all that is known of a step.
func (v *Vertex) tooltip() string {
	lines := []string{v.ID, v.caption()}
	if v.When != "" {
		lines = append(lines, "when "+v.When)
	}
	if len(v.Needs) > 0 {
		lines = append(lines, "needs "+strings.Join(v.Needs, ", "))
	}
	lines = append(lines, v.Notes...)
	if v.Pivot {
		lines = append(lines, "pivot: once it is completed, the task isn't undone after a failure")
	}
	return strings.Join(lines, "\n")
}

// cut shortens a text to a number of characters.
func cut(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:max(most-1, 0)]) + "…"
}

// escape returns text for XML. It replaces what XML can't hold.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder doesn't fail
	return b.String()
}
