package scheduler

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// maxPlays bounds the number of histories that are played to find a smaller failing one.
const maxPlays = 3000

// shrunk is the smallest failing history so far.
type shrunk struct {
	h     history
	b     *broken
	plays int
}

// shrink makes a history smaller while it still breaks the same promise. It removes moves, by halves and then one by
// one (ddmin), and then parts of the workflow.
func shrink(h history, b *broken) *shrunk {
	s := &shrunk{h: h, b: b}
	for smaller := true; smaller && s.plays < maxPlays; {
		moves, graph := s.fewerMoves(), s.lessGraph()
		smaller = moves || graph
	}
	return s
}

// try keeps a history if it breaks the same promise.
func (s *shrunk) try(h history) bool {
	if s.plays++; s.plays > maxPlays {
		return false
	}
	_, b := h.play(false)
	if b == nil || b.format != s.b.format {
		return false
	}
	s.h, s.b = h, b
	return true
}

func (s *shrunk) fewerMoves() (fewer bool) {
	for size := max(1, len(s.h.moves)/2); ; size /= 2 {
		for at := 0; at+size <= len(s.h.moves); {
			h := s.h
			h.moves = slices.Delete(slices.Clone(h.moves), at, at+size)
			if s.try(h) {
				fewer = true
			} else {
				at += size
			}
		}
		if size <= 1 {
			return fewer
		}
	}
}

func (s *shrunk) lessGraph() (less bool) {
	for again := true; again && s.plays < maxPlays; {
		again = false
		for _, h := range s.h.smaller() {
			if again = s.try(h); again {
				less = true
				break
			}
		}
	}
	return less
}

// report returns everything that is needed to understand the failure.
func (s *shrunk) report() string {
	w, _ := s.h.play(true)
	return fmt.Sprintf("%s\n\nseed %d, to be played again, whole, by\n\tgo test ./scheduler -run TestRandomHistories -seed %d -graphs 1\n\nThe least history that fails alike, of %d moves (%d plays):\n%s",
		s.b.text, s.h.seed, s.h.seed, len(s.h.moves), s.plays, w.story())
}

// story returns the workflow, the commands and the timeline.
func (w *scenario) story() string {
	var b strings.Builder
	for i, g := range w.h.graphs() {
		d, err := g.build(i + 1)
		if err != nil {
			return err.Error()
		}
		graph, err := d.Graph(workflow.GraphText)
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(&b, "\n== version %d of the workflow\n%s%s\n", i+1, graph, indented(d.JSON()))
	}
	b.WriteString("\n== the commands, by time since the submission\n")
	b.WriteString(strings.Join(w.told, "\n"))
	b.WriteString("\n\n== the timeline\n")
	for i := range w.records {
		line, err := events.TimelineLine(&w.records[i])
		if err != nil {
			fmt.Fprintf(&b, "%v\n", err)
			continue
		}
		fmt.Fprintf(&b, "%4d  %s  %-28s %s %s\n", line.Seq, line.At, line.Type, line.Step, short(w.records[i].Value))
	}
	if w.task != nil {
		fmt.Fprintf(&b, "\n== the task\n%s\n", short(w.task.Encode()))
	}
	return b.String()
}

func indented(raw []byte) string {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return string(raw)
	}
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return string(raw)
	}
	return string(out)
}

// maxShortBytes is the number of bytes of a value that are shown.
const maxShortBytes = 900

func short(raw []byte) string {
	if len(raw) > maxShortBytes {
		return fmt.Sprintf("%s... (%d bytes)", raw[:maxShortBytes], len(raw))
	}
	return string(raw)
}
