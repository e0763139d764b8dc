package scheduler

import (
	"slices"
	"time"

	"github.com/waybill-run/waybill/internal/congestion"
)

// silentAfter is the number of consecutive tasks whose attempts timed out without any reply of the agent in between.
// Then the agent counts as silent, and receives one probe at a time.
const silentAfter = 3

// agentRecord is what a worker knows about an agent.
type agentRecord struct {
	lastReply time.Time // of any request; zero: none
	timedOut  []string  // tasks whose attempts timed out since lastReply, at most silentAfter
	congestion.Window
}

func (r *agentRecord) isSilent() bool { return len(r.timedOut) >= silentAfter }

// recordTimeout records that an attempt of a task timed out. first is when its step was first tried. If the agent has
// replied since then, the time-out isn't counted: the agent is alive, and the task itself may be the cause.
func (r *agentRecord) recordTimeout(task string, first time.Time) {
	if r.lastReply.After(first) || r.isSilent() || slices.Contains(r.timedOut, task) {
		return
	}
	r.timedOut = append(slices.Clip(r.timedOut), task)
}

// agentHealth is what a worker knows about each agent. All partitions of the worker share it.
type agentHealth struct {
	agents            map[string]*agentRecord
	beforeTransaction map[string]agentRecord // the records that the transaction has changed
	flows             map[int32]*flow        // by partition
}

func newAgentHealth() *agentHealth {
	return &agentHealth{agents: map[string]*agentRecord{}, beforeTransaction: map[string]agentRecord{}, flows: map[int32]*flow{}}
}

// addPartition adds the flow of a restored partition.
func (h *agentHealth) addPartition(id int32, f *flow) {
	f.health, h.flows[id] = h, f
	for _, a := range f.order {
		if a.capacity == 0 && a.outstanding > 0 {
			h.modify(a.name).Adopt(h.outstanding(a.name), len(h.flows))
		}
	}
	for _, r := range h.agents {
		r.Widen(len(h.flows))
	}
	h.commit()
}

// hasWaiting reports whether steps wait for an agent.
func (h *agentHealth) hasWaiting(agent string) bool {
	for _, f := range h.flows {
		if a := f.agents[agent]; a != nil && len(a.queue) > 0 {
			return true
		}
	}
	return false
}

func (h *agentHealth) isSilent(agent string) bool {
	r := h.agents[agent]
	return r != nil && r.isSilent()
}

// isResponsive reports whether an agent has replied and isn't silent.
func (h *agentHealth) isResponsive(agent string) bool {
	r := h.agents[agent]
	return r != nil && !r.lastReply.IsZero() && !r.isSilent()
}

// window returns how many requests may be outstanding at an agent without a configured capacity.
func (h *agentHealth) window(agent string) int {
	r := h.agents[agent]
	if r == nil {
		r = &agentRecord{}
	}
	return r.Size(len(h.flows))
}

// windowShare returns one partition's share of the window.
func (h *agentHealth) windowShare(agent string) int {
	n := max(len(h.flows), 1)
	return max((h.window(agent)+n-1)/n, congestion.SlotsMin)
}

// outstanding returns the number of an agent's outstanding requests in all partitions.
func (h *agentHealth) outstanding(agent string) (n int) {
	for _, f := range h.flows {
		if a := f.agents[agent]; a != nil {
			n += a.outstanding
		}
	}
	return n
}

// unusedWindow returns the part of the window that no partition uses.
func (h *agentHealth) unusedWindow(agent string) int { return h.window(agent) - h.outstanding(agent) }

// modify returns the record of an agent for a change, and saves its old value for rollback.
func (h *agentHealth) modify(agent string) *agentRecord {
	r := h.agents[agent]
	if r == nil {
		r = &agentRecord{}
		h.agents[agent] = r
	}
	if _, kept := h.beforeTransaction[agent]; !kept {
		h.beforeTransaction[agent] = *r
	}
	return r
}

func (h *agentHealth) commit() { clear(h.beforeTransaction) }

// rollback restores the records from before the transaction, since the same inputs are read again.
func (h *agentHealth) rollback() {
	for agent, r := range h.beforeTransaction {
		*h.agents[agent] = r
	}
	h.commit()
}
