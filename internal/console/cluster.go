package console

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// WorkflowView is a version of a workflow, and what its tasks are doing.
type WorkflowView struct {
	Workflow string                     `json:"workflow"`
	Version  int                        `json:"version"`
	Steps    []string                   `json:"steps"`
	Agents   []string                   `json:"agents"`
	Tasks    map[events.TaskState]int64 `json:"tasks"` // by state
}

type workflowList struct {
	Workflows         []WorkflowView `json:"workflows"`
	AsOf              []events.AsOf  `json:"as_of"`
	MissingPartitions []int32        `json:"missing_partitions"`
}

// workflows lists what was applied, and what tasks there are of. A version that has
// tasks is there though its definition isn't any more.
func (c *call) workflows() (any, error) {
	if err := c.knows(); err != nil {
		return nil, err
	}
	share, err := c.shares()
	if err != nil {
		return nil, err
	}
	views, reflected := map[string]*WorkflowView{}, map[int32]int64{}
	of := func(name string, version int) *WorkflowView {
		key := name + "/" + strconv.Itoa(version)
		if views[key] == nil {
			views[key] = &WorkflowView{Workflow: name, Version: version, Steps: []string{}, Agents: []string{}, Tasks: map[events.TaskState]int64{}}
		}
		return views[key]
	}
	for _, w := range c.cfg.Cluster.Workflows() {
		v := of(w.Name, w.Version)
		v.Steps, v.Agents = w.Steps, w.Agents
	}
	err = c.eachCounts(share.own, func(p int32, counts projections.Counts, next int64) {
		reflected[p] = next
		for key, states := range counts.Workflows {
			name, version := cutVersion(key)
			add(of(name, version).Tasks, states)
		}
	})
	if err != nil {
		return nil, err
	}
	err = gather(c, share.at, func(l workflowList) {
		for _, w := range l.Workflows {
			add(of(w.Workflow, w.Version).Tasks, w.Tasks)
		}
		addAsOf(reflected, l.AsOf)
	})
	if err != nil {
		return nil, err
	}
	missing, err := c.missing(reflected, nil)
	if err != nil {
		return nil, err
	}
	l := &workflowList{Workflows: []WorkflowView{}, AsOf: asOf(reflected), MissingPartitions: missing}
	for _, v := range views {
		l.Workflows = append(l.Workflows, *v)
	}
	slices.SortFunc(l.Workflows, func(a, b WorkflowView) int {
		return cmp.Or(cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Version, b.Version))
	})
	return l, nil
}

// cutVersion is the inverse of name/version. A name may hold slashes.
func cutVersion(key string) (name string, version int) {
	for i := len(key) - 1; i >= 0; i-- {
		if key[i] == '/' {
			version, _ = strconv.Atoi(key[i+1:]) // the audit wrote a number
			return key[:i], version
		}
	}
	return key, 0
}

func add(sum, more map[events.TaskState]int64) {
	for state, n := range more {
		sum[state] += n
	}
}

func addAsOf(reflected map[int32]int64, list []events.AsOf) {
	for _, at := range list {
		if next, err := strconv.ParseInt(at.Offset, 10, 64); err == nil {
			reflected[at.Partition] = next
		}
	}
}

// eachCounts gives fn what is counted of each partition that is answered for here.
func (c *call) eachCounts(own []int32, fn func(p int32, counts projections.Counts, next int64)) error {
	if err := c.cfg.Audit.Fresh(c.r.Context(), own...); err != nil {
		return err
	}
	for _, p := range own {
		counts, next, err := c.cfg.Audit.Counts(p)
		if err != nil {
			return err
		}
		fn(p, counts, next)
	}
	return nil
}

// AgentView is an agent.
type AgentView struct {
	Agent      string `json:"agent"`
	Partitions int32  `json:"partitions"` // of its request topic
	Members    int    `json:"members"`    // processes that read its requests
	Lag        int64  `json:"lag"`        // offsets: requests that aren't finished, taken or not, and the markers between
	InFlight   int64  `json:"in_flight"`  // tasks of which it has an attempt, as the events have it
	// Circuit is the worst of all downstreams of all members, closed, half-open or open, as
	// their commits say; unknown where none says it: no member that has worked, or members
	// that aren't Waybill's.
	Circuit string `json:"circuit"`
}

type agentList struct {
	Agents            []AgentView   `json:"agents"`
	AsOf              []events.AsOf `json:"as_of"` // of in_flight
	MissingPartitions []int32       `json:"missing_partitions"`
}

func (c *call) agents() (any, error) {
	if err := c.knows(); err != nil {
		return nil, err
	}
	share, err := c.shares()
	if err != nil {
		return nil, err
	}
	l := &agentList{}
	if l.Agents, err = c.cfg.Cluster.Agents(c.r.Context()); err != nil {
		return nil, unavailable("the agents: %v", err)
	}
	reflected, inFlight := map[int32]int64{}, map[string]int64{}
	err = c.eachCounts(share.own, func(p int32, counts projections.Counts, next int64) {
		reflected[p] = next
		for agent, n := range counts.Agents {
			inFlight[agent] += n
		}
	})
	if err != nil {
		return nil, err
	}
	err = gather(c, share.at, func(other agentList) {
		addAsOf(reflected, other.AsOf)
		for _, a := range other.Agents {
			inFlight[a.Agent] += a.InFlight
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range l.Agents {
		l.Agents[i].InFlight = inFlight[l.Agents[i].Agent]
	}
	l.AsOf = asOf(reflected)
	l.MissingPartitions, err = c.missing(reflected, nil)
	return l, err
}

// PartitionView is a partition.
type PartitionView struct {
	Partition int32   `json:"partition"`
	Owner     *string `json:"owner"` // by the last claim
	Epoch     uint64  `json:"epoch"`
	// Scheduler has the partition now, by Kafka; null: none. Until it has written something it
	// isn't the owner. SchedulerRestored is how much it has read of what it must read
	// before it acts, from 0 to 1.
	Scheduler         *string  `json:"scheduler"`
	SchedulerRestored *float64 `json:"scheduler_restored"`

	Lag       int64   `json:"lag"`   // inputs that the scheduler hasn't consumed
	Tasks     int64   `json:"tasks"` // ever
	OpenTasks int64   `json:"open_tasks"`
	OldestDue *string `json:"oldest_due"` // the earliest timer that is armed
	// Restored is how much of the partition the audit has read, from 0 to 1.
	Restored float64     `json:"restored"`
	AsOf     events.AsOf `json:"as_of"`
	End      string      `json:"end"`     // where events of the partition end
	Console  string      `json:"console"` // the URL of the one that has it
}

type partitionList struct {
	Partitions        []PartitionView `json:"partitions"`
	MissingPartitions []int32         `json:"missing_partitions"`
}

func (c *call) partitions() (any, error) {
	if err := c.knows(); err != nil {
		return nil, err
	}
	share, err := c.shares()
	if err != nil {
		return nil, err
	}
	scheduling, err := c.cfg.Cluster.Scheduling(c.r.Context())
	if err != nil {
		return nil, unavailable("the schedulers: %v", err)
	}
	l := &partitionList{Partitions: []PartitionView{}}
	reflected, progress := map[int32]int64{}, c.cfg.Audit.Progress()
	err = c.eachCounts(share.own, func(p int32, counts projections.Counts, next int64) {
		reflected[p] = next
		l.Partitions = append(l.Partitions, c.partition(p, counts, next, progress[p], scheduling[p]))
	})
	if err != nil {
		return nil, err
	}
	err = gather(c, share.at, func(other partitionList) {
		for _, v := range other.Partitions {
			addAsOf(reflected, []events.AsOf{v.AsOf})
			l.Partitions = append(l.Partitions, v)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(l.Partitions, func(a, b PartitionView) int { return cmp.Compare(a.Partition, b.Partition) })
	l.MissingPartitions, err = c.missing(reflected, nil)
	return l, err
}

func (c *Console) partition(p int32, counts projections.Counts, next int64, read Progress, by Scheduling) PartitionView {
	v := PartitionView{Partition: p, Epoch: counts.Epoch, Lag: by.Lag, Restored: 1, End: strconv.FormatInt(max(read.End, next), 10),
		AsOf: events.AsOf{Partition: p, Offset: strconv.FormatInt(next, 10)}, OldestDue: events.InstantText(counts.OldestDue), Console: c.cfg.URL}
	if counts.Owner != "" {
		v.Owner = &counts.Owner
	}
	if by.Scheduler != "" {
		v.Scheduler, v.SchedulerRestored = &by.Scheduler, &by.Restored
	}
	for state, n := range counts.Tasks {
		v.Tasks += n
		if !state.Terminal() {
			v.OpenTasks += n
		}
	}
	if read.Behind && read.End > 0 {
		v.Restored = min(1, float64(read.Next)/float64(read.End))
	}
	return v
}
