package scheduler

import (
	"slices"
	"time"
)

// silentAfter so many tasks whose attempts timed out, one after another and with no
// reply of the agent meanwhile, it is tried with one probe at a time.
const silentAfter = 3

// voice is what a lane has heard of an agent.
type agentRecord struct {
	lastReply time.Time // the last reply; zero: none
	timedOut  []string  // tasks whose attempts timed out since, at most silentAfter
	congestion
}

func (v *agentRecord) isSilent() bool { return len(v.timedOut) >= silentAfter }

// agentHealth are a lane's, by agent: what one partition recordReply, all know.
type agentHealth struct {
	agents            map[string]*agentRecord
	beforeTransaction map[string]agentRecord // the transaction
	flows             map[int32]*flow        // of the lane's partitions, which share the observed bounds
}

func newAgentHealth() *agentHealth {
	return &agentHealth{agents: map[string]*agentRecord{}, beforeTransaction: map[string]agentRecord{}, flows: map[int32]*flow{}}
}

// join takes in the flow of a partition that was restored. What is outstanding there has
// been let out by the lane before it, or by this one: so the agent has shown no less than
// what is outstanding in all, without what each partition begins with.
func (vs *agentHealth) addPartition(id int32, f *flow) {
	f.health, vs.flows[id] = vs, f
	for _, a := range f.order {
		if a.capacity == 0 && a.outstanding > 0 {
			v := vs.modify(a.name)
			v.slowStart = max(v.slowStart, vs.outstanding(a.name)-initialWindow*len(vs.flows))
		}
	}
	for _, v := range vs.agents {
		if v.windowMax > 0 {
			v.windowMax = max(v.windowMax, v.windowMin*len(vs.flows))
		}
	}
	vs.commit()
}

// waiting reports whether steps wait for an agent.
func (vs *agentHealth) hasWaiting(agent string) bool {
	for _, f := range vs.flows {
		if a := f.agents[agent]; a != nil && len(a.queue) > 0 {
			return true
		}
	}
	return false
}

// silent reports whether nothing was heard of an agent for too long.
func (vs *agentHealth) isSilent(agent string) bool {
	v := vs.agents[agent]
	return v != nil && v.isSilent()
}

// answers reports whether an agent has been heard of, and isn't silent.
func (vs *agentHealth) isResponsive(agent string) bool {
	v := vs.agents[agent]
	return v != nil && !v.lastReply.IsZero() && !v.isSilent()
}

// limit is how many requests of an agent without a capacity may be outstanding.
func (vs *agentHealth) window(agent string) int {
	if v := vs.agents[agent]; v != nil {
		return v.window(len(vs.flows))
	}
	return initialWindow * len(vs.flows)
}

// share is a partition's part of that, at least one.
func (vs *agentHealth) windowShare(agent string) int {
	n := max(len(vs.flows), 1)
	return max((vs.window(agent)+n-1)/n, partitionSlotsMin)
}

// outstanding is how many requests of an agent are, of all partitions.
func (vs *agentHealth) outstanding(agent string) (n int) {
	for _, f := range vs.flows {
		if a := f.agents[agent]; a != nil {
			n += a.outstanding
		}
	}
	return n
}

// spare is how much of that no partition uses.
func (vs *agentHealth) unusedWindow(agent string) int {
	return vs.window(agent) - vs.outstanding(agent)
}

// change returns what is known of an agent, to be changed.
func (vs *agentHealth) modify(agent string) *agentRecord {
	v := vs.agents[agent]
	if v == nil {
		v = &agentRecord{}
		vs.agents[agent] = v
	}
	if _, kept := vs.beforeTransaction[agent]; !kept {
		vs.beforeTransaction[agent] = *v
	}
	return v
}

// settle: what was heard is true.
func (vs *agentHealth) commit() { clear(vs.beforeTransaction) }

// forget: the transaction was rolled back, and its inputs will be heard again.
func (vs *agentHealth) rollback() {
	for agent, v := range vs.beforeTransaction {
		*vs.agents[agent] = v
	}
	vs.commit()
}

// recordTimeout: an attempt timed out of a task whose step was first tried then. It says
// something of the agent only if that has said nothing meanwhile: else it is the
// task's own fault, or may be.
func (v *agentRecord) recordTimeout(task string, first time.Time) {
	if v.lastReply.After(first) || v.isSilent() || slices.Contains(v.timedOut, task) {
		return
	}
	v.timedOut = append(slices.Clip(v.timedOut), task)
}
