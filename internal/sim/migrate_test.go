//go:build synctests

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// secondVersion makes another version of a workflow: one more step, its steps in another order, and other times.
func secondVersion(rnd *rand.Rand, d *workflow.Definition) *workflow.Definition {
	b := workflow.New(d.Name, 2).CompleteWithin(taskMost + coolDownMost).AttemptWithin(attemptMost)
	b.OnError([]string{events.OnErrorUndo, events.OnErrorHold}[rnd.IntN(2)])
	b.Retry(workflow.Retry{MaxAttempts: 1 + rnd.IntN(4), Backoff: workflow.Duration(backoffMost), Factor: 1, Max: workflow.Duration(backoffMost)})
	more := workflow.Step{ID: "s9", Agent: agents[rnd.IntN(len(agents))], Operation: "do9", Input: map[string]any{"n": 9}}
	steps := slices.Clone(d.Steps)
	switch rnd.IntN(3) {
	case 0: // first: it fits only tasks that haven't begun what needs it
		i := rnd.IntN(len(steps))
		steps[i].Needs = append(slices.Clone(steps[i].Needs), more.ID)
	case 1:
		more.Needs = []string{steps[len(steps)-1].ID}
	}
	steps = append(steps, more)
	slices.Reverse(steps)
	for i := range steps {
		b.Step(steps[i])
	}
	second, err := b.Build()
	if err != nil {
		panic(err) // the generator is wrong, not the seed
	}
	return second
}

// migrate gives some task a version, back and forth, or asks whether it would be migrated.
func (l *load) migrate(ctx context.Context) {
	if l.migrations.IntN(6) > 0 {
		return
	}
	l.mu.Lock()
	l.controls++
	n := l.controls
	if len(l.ids) == 0 {
		l.mu.Unlock()
		return
	}
	task := l.ids[max(0, len(l.ids)-1-int(l.migrations.ExpFloat64()*8))]
	l.mu.Unlock()
	x := events.Control{Task: task, Command: events.Migrate, Version: 1 + l.migrations.IntN(2), DryRun: l.migrations.IntN(4) == 0,
		By: events.By{Who: "sim", Why: "because", RequestID: fmt.Sprintf("migration-%d", n)}}
	l.send(ctx, x.Record(l.w.ns, "sim"))
}
