package console

import (
	"slices"
	"strings"

	"github.com/waybill-run/waybill/internal/consoleapi"
)

// maxLineEdits bounds the work of a comparison. Texts that differ in more lines are shown as replaced.
const maxLineEdits = 1000

// diffLines compares two texts line by line.
func diffLines(before, after string) []consoleapi.SourceLine {
	a, b := linesOf(before), linesOf(after)
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	d := lineDiff{a: a, lines: make([]consoleapi.SourceLine, 0, len(a))}
	d.same(head)
	for _, op := range shortestEdit(a[head:len(a)-tail], b[head:len(b)-tail]) {
		switch op {
		case '=':
			d.same(1)
		case '-':
			d.lines = append(d.lines, consoleapi.SourceLine{Op: "removed", Text: a[d.from], From: d.from + 1})
			d.from++
		default:
			d.lines = append(d.lines, consoleapi.SourceLine{Op: "added", Text: b[d.to], To: d.to + 1})
			d.to++
		}
	}
	d.same(tail)
	return d.lines
}

// lineDiff is a comparison in the making.
type lineDiff struct {
	a        []string // the lines before
	from, to int      // lines so far
	lines    []consoleapi.SourceLine
}

func (d *lineDiff) same(n int) {
	for range n {
		d.lines = append(d.lines, consoleapi.SourceLine{Op: "same", Text: d.a[d.from], From: d.from + 1, To: d.to + 1})
		d.from++
		d.to++
	}
}

func linesOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// shortestEdit returns the least changes from a to b: = keeps a line, - removes one, + adds one (Myers, "An O(ND)
// Difference Algorithm and Its Variations", 1986). Past maxLineEdits it removes all of a and adds all of b.
func shortestEdit(a, b []string) []byte {
	most := min(len(a)+len(b), maxLineEdits)
	reach := map[int]int{1: 0} // by diagonal: the farthest line of a
	var trail []map[int]int
	for edits := 0; edits <= most; edits++ {
		trail = append(trail, cloneReach(reach, edits))
		for k := -edits; k <= edits; k += 2 {
			x := reach[k-1] + 1
			if k == -edits || k != edits && reach[k-1] < reach[k+1] {
				x = reach[k+1]
			}
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			if reach[k] = x; x >= len(a) && x-k >= len(b) {
				return backtrack(trail, len(a), len(b))
			}
		}
	}
	return append(slices.Repeat([]byte{'-'}, len(a)), slices.Repeat([]byte{'+'}, len(b))...)
}

// cloneReach copies the diagonals that a step back can need.
func cloneReach(reach map[int]int, edits int) map[int]int {
	own := make(map[int]int, edits+2)
	for k := -edits - 1; k <= edits+1; k++ {
		if x, is := reach[k]; is {
			own[k] = x
		}
	}
	return own
}

// backtrack returns the changes that led to the ends of both texts.
func backtrack(trail []map[int]int, x, y int) []byte {
	var ops []byte
	for edits := len(trail) - 1; edits >= 0; edits-- {
		reach, k := trail[edits], x-y
		before := k - 1
		if k == -edits || k != edits && reach[k-1] < reach[k+1] {
			before = k + 1
		}
		fromX := reach[before]
		fromY := fromX - before
		for x > fromX && y > fromY && x > 0 && y > 0 {
			ops = append(ops, '=')
			x--
			y--
		}
		if edits == 0 {
			break
		}
		if x == fromX {
			ops = append(ops, '+')
		} else {
			ops = append(ops, '-')
		}
		x, y = fromX, fromY
	}
	slices.Reverse(ops)
	return ops
}
