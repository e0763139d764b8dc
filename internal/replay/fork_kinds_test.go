package replay_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// randomKind returns the fields of a step that calls no agent; empty: it is a call.
func randomKind(more *rand.Rand) string {
	switch more.IntN(8) {
	case 0:
		return fmt.Sprintf("wait: %ds", 1+more.IntN(15))
	case 1:
		return fmt.Sprintf("signal: %s, complete_within: %ds", []string{"yes", "no"}[more.IntN(2)], 1+more.IntN(15))
	default:
		return ""
	}
}

// randomRepeat returns the field repeat of some calls. A few conditions fail.
func randomRepeat(more *rand.Rand) string {
	if more.IntN(6) > 0 {
		return ""
	}
	until := []string{"output.code == 'c'", "output.code == 'd'", "output.gone"}[more.IntN(3)]
	return fmt.Sprintf(", repeat: {until: \"${ %s }\", every: %ds, max: %d}", until, 1+more.IntN(5), 1+more.IntN(3))
}

// randomCodes returns the field retry of some operations.
func randomCodes(more *rand.Rand) string {
	list := []string{"c", "d", "expired", "no_such_agent"}[more.IntN(4)]
	switch more.IntN(6) {
	case 0:
		return ", retry: {only: [" + list + "]}"
	case 1:
		return ", retry: {except: [" + list + "]}"
	default:
		return ""
	}
}

// randomFailures returns the fields that say what the failures of a step mean.
func randomFailures(more *rand.Rand, call bool) (fields string) {
	if call {
		fields += randomCodes(more)
	}
	if more.IntN(8) == 0 {
		fields += ", pivot: true"
	}
	if n := more.IntN(12); n < 4 {
		fields += ", catch: " + []string{"[c]", "[expired, expression_failed]", "[tries_exhausted]", `["*"]`}[n]
	}
	return fields
}

// randomCheck returns the field check of some calls.
func randomCheck(more *rand.Rand) string {
	return []string{"", "", ", check: {operation: status}", ", check: {operation: status, agent: mail, complete_within: 3s, retry: {max_attempts: 1}}"}[more.IntN(4)]
}

// anyBody returns the body of a reply: an output, an error, or an answer to a check.
func (c *randomCourse) anyBody(k events.Kind) []byte {
	if k == events.Check {
		return []byte([]string{`{"outcome":"completed","output":{"code":"c"}}`, `{"outcome":"none"}`, `{"outcome":"unknown"}`, `{"code":"c"}`}[c.more.IntN(4)])
	}
	return []byte([]string{`{"code":"c"}`, `{"code":"d"}`}[c.more.IntN(2)])
}

// signal sends a signal, sometimes one again.
func (c *randomCourse) signal() {
	c.now = c.now.Add(time.Duration(c.more.IntN(20)) * 50 * time.Millisecond)
	c.decide(&events.Signal{Task: "o-1", Name: []string{"yes", "no"}[c.more.IntN(2)], ID: fmt.Sprint(c.more.IntN(20)), By: "ada"})
}

func (c *randomCourse) countKinds(e *events.Event) {
	switch f := e.Fact.(type) {
	case *events.RunCaught:
		c.counts["caught"]++
		if s := c.task.Steps[stepOf(c.task, f.Step)]; s.Undo != nil {
			c.counts["caught after an undo"]++
		}
	case *events.TaskSignalled:
		c.counts["signalled"]++
	case *events.WaitCompleted:
		c.counts["wait.completed"]++
	case *events.CheckCompleted:
		c.counts["check: "+string(f.Became)]++
	default:
		if f.About().Verb == events.VerbRepeated {
			c.counts["repeated"]++
		}
	}
}

func stepOf(t *events.Task, id string) int {
	i, _ := t.Plan.Step(id)
	return i
}

// goOn ends a step that waits, or its time, during a hold. It reports whether there is one.
func (c *randomCourse) goOn() bool {
	armed := slices.DeleteFunc(slices.Clone(c.timers.Armed), func(a events.Armed) bool { return a.Policy.Timer != events.TimerStep })
	if len(armed) == 0 {
		return false
	}
	c.fire(c.first(armed))
	return true
}
