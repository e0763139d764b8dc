package projections

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"strconv"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Counts are numbers of a partition's tasks and events.
type Counts struct {
	Tasks     map[events.TaskState]int64            // by state
	Workflows map[string]map[events.TaskState]int64 // by name/version, and state
	Agents    map[string]int64                      // tasks that have an attempt at an agent, by agent
	Events    map[string]int64                      // by type
	Owner     string                                // by the last claim
	Epoch     uint64                                // of the last claim
	OldestDue time.Time                             // earliest armed timer of all tasks; zero: none is armed
}

// tally is the stored form of the counts of rows.
type tally struct {
	Format    int                                   `json:"index_format,omitempty"`
	Workflows map[string]map[events.TaskState]int64 `json:"workflows"`
	Agents    map[string]int64                      `json:"agents"`
	Owner     string                                `json:"owner,omitempty"`
	Epoch     uint64                                `json:"epoch,omitempty"`
	// No timer is due before DueFrom. Deleted entries are below it, and are skipped.
	DueFrom int64 `json:"due_from,omitempty"`
	// LastAt is the instant of the last event that was applied, in Unix milliseconds; 0: not known.
	LastAt int64 `json:"last_at,omitempty"`
	// Latest is the latest instant of all events that were applied, in Unix milliseconds.
	Latest int64 `json:"latest,omitempty"`
	// PastAlerts is the number of past alerts that are kept.
	PastAlerts int64 `json:"past_alerts,omitempty"`
}

// workflowKey is the name of a workflow's version in Counts.
func workflowKey(s *events.Summary) string { return s.Workflow + "/" + strconv.Itoa(s.Version) }

// move counts a change of a task's state, or of its version. A state is empty if the task isn't counted in it: it is new,
// or hidden.
func (t *tally) move(s *events.Summary, was *indexState, is events.TaskState) {
	if was.state == is && (is == "" || was.version == s.Version) {
		return
	}
	if t.Workflows == nil {
		t.Workflows = map[string]map[events.TaskState]int64{}
	}
	key := workflowKey(s)
	if t.Workflows[key] == nil {
		t.Workflows[key] = map[events.TaskState]int64{}
	}
	if is != "" {
		t.Workflows[key][is]++
	}
	if was.state == "" {
		return
	}
	if was.version != s.Version {
		key = workflowKey(&events.Summary{Workflow: s.Workflow, Version: was.version})
	}
	states := t.Workflows[key]
	if states[was.state]--; states[was.state] == 0 {
		delete(states, was.state)
	}
	if len(states) == 0 { // as if no task had had the version
		delete(t.Workflows, key)
	}
}

// moveAgents counts a change of a task's agents.
func (t *tally) moveAgents(was, is []string) {
	if t.Agents == nil {
		t.Agents = map[string]int64{}
	}
	for _, a := range is {
		t.Agents[a]++
	}
	for _, a := range was {
		if t.Agents[a]--; t.Agents[a] == 0 {
			delete(t.Agents, a)
		}
	}
}

// Counts returns the counts, and the offset below which they reflect the partition.
func (s *Store) Counts(p int32) (Counts, int64, error) {
	c := Counts{Tasks: map[events.TaskState]int64{}, Workflows: map[string]map[events.TaskState]int64{}, Agents: map[string]int64{}, Events: map[string]int64{}}
	asOf, err := s.onSnapshot(ViewTimelines, p, func(r reader) {
		r.get(kindCounts, "", func(data []byte) error { return json.Unmarshal(data, &c.Events) })
		t := r.tally()
		c.Owner, c.Epoch = t.Owner, t.Epoch
		maps.Copy(c.Workflows, t.Workflows)
		maps.Copy(c.Agents, t.Agents)
		for _, states := range t.Workflows {
			for state, n := range states {
				c.Tasks[state] += n
			}
		}
		if due := r.firstDue(t.DueFrom); due != 0 {
			c.OldestDue = instant(due)
		}
	})
	return c, asOf.Next, err
}

func (r reader) tally() (t tally) {
	r.get(kindTally, "", func(data []byte) error { return json.Unmarshal(data, &t) })
	return t
}

// firstDue returns the earliest instant at which a timer is due, in Unix ms; 0: none is armed. No timer may be due
// before from.
func (r reader) firstDue(from int64) (due int64) {
	_, upper := r.keys.bounds(kindDue)
	it := r.iterator(r.keys.appendDueKey(nil, from, ""), upper)
	defer it.close()
	if it.first() && len(it.rest()) >= 8 {
		due = int64(binary.BigEndian.Uint64(it.key()[prefixBytes:]))
	}
	return due
}
