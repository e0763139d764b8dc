package scheduler

import (
	"slices"
	"time"
)

// silentAfter so many tasks whose attempts timed out, one after another and with no
// reply of the agent meanwhile, it is tried with one probe at a time.
const silentAfter = 3

// voice is what a lane has heard of an agent.
type voice struct {
	heard time.Time // the last reply; zero: none
	lost  []string  // tasks whose attempts timed out since, at most silentAfter
	observed
}

func (v *voice) silent() bool { return len(v.lost) >= silentAfter }

// voices are a lane's, by agent: what one partition hears, all know.
type voices struct {
	agents map[string]*voice
	before map[string]voice // the transaction
	flows  map[int32]*flow  // of the lane's partitions, which share the observed bounds
}

func newVoices() *voices {
	return &voices{agents: map[string]*voice{}, before: map[string]voice{}, flows: map[int32]*flow{}}
}

// join takes in the flow of a partition that was restored. What is outstanding there has
// been let out by the lane before it, or by this one: so the agent has shown no less than
// what is outstanding in all, without what each partition begins with.
func (vs *voices) join(id int32, f *flow) {
	f.voices, vs.flows[id] = vs, f
	for _, a := range f.order {
		if a.capacity == 0 && a.outstanding > 0 {
			v := vs.change(a.name)
			v.proven = max(v.proven, vs.outstanding(a.name)-leastSlots*len(vs.flows))
		}
	}
	for _, v := range vs.agents {
		if v.bound > 0 {
			v.bound = max(v.bound, v.least*len(vs.flows))
		}
	}
	vs.settle()
}

// waiting reports whether steps wait for an agent.
func (vs *voices) waiting(agent string) bool {
	for _, f := range vs.flows {
		if a := f.agents[agent]; a != nil && len(a.queue) > 0 {
			return true
		}
	}
	return false
}

// silent reports whether nothing was heard of an agent for too long.
func (vs *voices) silent(agent string) bool {
	v := vs.agents[agent]
	return v != nil && v.silent()
}

// answers reports whether an agent has been heard of, and isn't silent.
func (vs *voices) answers(agent string) bool {
	v := vs.agents[agent]
	return v != nil && !v.heard.IsZero() && !v.silent()
}

// limit is how many requests of an agent without a capacity may be outstanding.
func (vs *voices) limit(agent string) int {
	if v := vs.agents[agent]; v != nil {
		return v.limit(len(vs.flows))
	}
	return leastSlots * len(vs.flows)
}

// share is a partition's part of that, at least one.
func (vs *voices) share(agent string) int {
	n := max(len(vs.flows), 1)
	return max((vs.limit(agent)+n-1)/n, slotsLeast)
}

// outstanding is how many requests of an agent are, of all partitions.
func (vs *voices) outstanding(agent string) (n int) {
	for _, f := range vs.flows {
		if a := f.agents[agent]; a != nil {
			n += a.outstanding
		}
	}
	return n
}

// spare is how much of that no partition uses.
func (vs *voices) spare(agent string) int { return vs.limit(agent) - vs.outstanding(agent) }

// change returns what is known of an agent, to be changed.
func (vs *voices) change(agent string) *voice {
	v := vs.agents[agent]
	if v == nil {
		v = &voice{}
		vs.agents[agent] = v
	}
	if _, kept := vs.before[agent]; !kept {
		vs.before[agent] = *v
	}
	return v
}

// settle: what was heard is true.
func (vs *voices) settle() { clear(vs.before) }

// forget: the transaction was rolled back, and its inputs will be heard again.
func (vs *voices) forget() {
	for agent, v := range vs.before {
		*vs.agents[agent] = v
	}
	vs.settle()
}

// loses: an attempt timed out of a task whose step was first tried then. It says
// something of the agent only if that has said nothing meanwhile: else it is the
// task's own fault, or may be.
func (v *voice) loses(task string, first time.Time) {
	if v.heard.After(first) || v.silent() || slices.Contains(v.lost, task) {
		return
	}
	v.lost = append(slices.Clip(v.lost), task)
}
