package scheduler

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-run/waybill/events"
)

// TestAdmissionIgnoresAgentsThatNeverAnswered checks that tasks of another workflow are admitted while more tasks than
// --max-runnable wait for an agent that never replied.
func TestAdmissionIgnoresAgentsThatNeverAnswered(t *testing.T) {
	for name, capacity := range map[string]Capacity{
		"configured": {Agents: map[string]int{"inventory": 5}}, "observed": {Observe: true}, "any number": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 1)
			s.cfg.Capacity, s.cfg.MaxRunnable = capacity, 40
			w := s.worker(s.cluster.join(0))
			for i := range 100 {
				s.submit("w", fmt.Sprint("stuck-", i))
			}
			s.submit("pay", "other")
			s.drain(w)
			if got := s.asked("payments"); len(got) != 1 {
				t.Errorf("asked for %q", got)
			}
			if w.admissionClosed {
				t.Error("and submissions wait")
			}
		})
	}
}

// TestBacklogOfOneAgentLeavesAdmissionOpen checks that the backlog of one agent or one workflow never closes admission,
// and that the work of several agents and workflows does.
func TestBacklogOfOneAgentLeavesAdmissionOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(admissionShare, 20_000).Draw(t, "most")
		huge := rapid.IntRange(0, 50*most)
		one := &workload{agents: map[string]int{}, workflows: map[string]int{}}
		if rapid.Bool().Draw(t, "one agent") { // of many workflows
			one.agents["dead"] = huge.Draw(t, "steps")
			for i := range rapid.IntRange(1, 20).Draw(t, "workflows") {
				one.workflows[fmt.Sprint(i)] = huge.Draw(t, "tasks")
			}
		} else { // one workflow, of many agents
			one.workflows["w"] = huge.Draw(t, "tasks")
			one.unslotted = huge.Draw(t, "unslotted")
			for i := range rapid.IntRange(1, 20).Draw(t, "agents") {
				one.agents[fmt.Sprint(i)] = huge.Draw(t, "steps")
			}
		}
		if n := one.admissionLoad(most); !admissionOpen(true, n, most) || n > most/admissionShare {
			t.Fatalf("%+v counts as %d of %d", one, n, most)
		}
		// More work never lowers the load.
		more := &workload{agents: map[string]int{"another": huge.Draw(t, "more steps")}, workflows: map[string]int{"another": huge.Draw(t, "more tasks")}}
		for name, n := range one.agents {
			more.agents[name] = n
		}
		for name, n := range one.workflows {
			more.workflows[name] = n
		}
		more.unslotted = one.unslotted
		if more.admissionLoad(most) < one.admissionLoad(most) {
			t.Fatalf("%+v counts for less than %+v", more, one)
		}
	})
}

func TestAdmissionLoad(t *testing.T) {
	four := func(n int) map[string]int { return map[string]int{"a": n, "b": n, "c": n, "d": n} }
	for _, c := range []struct {
		name string
		load workload
		want int
		open bool
	}{
		{"nothing", workload{}, 0, true},
		{"little, each counts", workload{agents: map[string]int{"a": 7}, workflows: map[string]int{"w": 5}}, 5, true},
		{"one agent, one workflow", workload{agents: map[string]int{"a": 900}, workflows: map[string]int{"w": 900}}, 25, true},
		{"four agents, one workflow", workload{agents: four(900), workflows: map[string]int{"w": 900}}, 25, true},
		{"one agent, four workflows", workload{agents: map[string]int{"a": 900}, workflows: four(900)}, 25, true},
		{"four and four", workload{agents: four(25), workflows: four(25)}, 100, false},
		{"agents without a limit", workload{unslotted: 100, workflows: four(25)}, 100, false},
		{"memory", workload{waiting: 100 * waitingPerRunnable}, 100 * waitingPerRunnable, false},
	} {
		if got := c.load.admissionLoad(100); got != c.want || admissionOpen(true, got, 100) != c.open {
			t.Errorf("%s: %d counts, admits %v; want %d, %v", c.name, got, admissionOpen(true, got, 100), c.want, c.open)
		}
	}
	if admissionOpen(false, 91, 100) || !admissionOpen(false, 90, 100) || admissionOpen(false, 1, 1) || !admissionOpen(false, 0, 1) {
		t.Error("admission opens again at another part of the bound")
	}
}

// several adds n workflows w0, w1, ..., each with its own agent a0, a1, ...
func (s *site) several(n int) {
	for i := range n {
		agent := fmt.Sprint("a", i)
		s.agents[agent] = 1
		s.catalog.unread = append(s.catalog.unread, definition(s.t, fmt.Sprint("w", i), agent))
	}
	if err := s.catalog.ReadToEndNow(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// TestAdmission checks that admission pauses only the tasks inbox, and resumes it when the load has decreased.
func TestAdmission(t *testing.T) {
	for _, most := range []int{4, 12, 40} {
		s := newSite(t, 1)
		s.several(admissionShare)
		s.cfg.MaxRunnable = most
		log := s.cluster.join(0)
		log.max = 1
		w := s.worker(log)
		ids := make([]string, 2*most)
		for i := range ids {
			ids[i] = fmt.Sprintf("t-%02d", i)
			s.submit(fmt.Sprint("w", i%admissionShare), ids[i])
		}
		answered := map[string]bool{}
		s.until(w, "all tasks are through", func() bool {
			if n := len(w.partitions[0].runs()); n > most+admissionShare {
				t.Fatalf("%d tasks are worked on; at most %d", n, most)
			}
			if !log.flows(ns.Inbox(events.Tasks), 0) || s.drained() {
				for i := range admissionShare {
					s.answerAll(fmt.Sprint("a", i), answered)
				}
			}
			return len(answered) == len(ids) && s.drained()
		})
		s.lived(ids...)
		for i, topic := range log.pauses {
			want := ns.Inbox(events.Tasks)
			if i%2 == 1 {
				want = "+" + want
			}
			if topic != want {
				t.Errorf("pauses and resumes: %v", log.pauses)
			}
		}
		if len(log.pauses) < 2 {
			t.Errorf("%d tasks at most, %d came, and admission stayed open", most, len(ids))
		}
	}
}

// answerAll completes an agent's requests that have no answer yet.
func (s *site) answerAll(agent string, answered map[string]bool) {
	s.t.Helper()
	for _, r := range s.cluster.all(ns.Requests(agent)) {
		q, err := events.DecodeRequest(&r)
		if err != nil {
			s.t.Fatal(err)
		}
		if !answered[q.Task] {
			answered[q.Task] = true
			s.cluster.write((&events.Reply{Task: q.Task, Ref: q.Ref, Token: q.Token, Outcome: events.Completed, Body: []byte("{}")}).Record(ns, "test"))
		}
	}
}

func (p *partition) runs() map[string]string {
	if p == nil {
		return nil
	}
	return p.runnable.tasks
}
