package console

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/index"
	"github.com/waybill-run/waybill/projections"
)

// WorkflowView is a version of a workflow, with counts of its tasks.
type WorkflowView struct {
	Workflow string                     `json:"workflow" jsonschema:"The name of the workflow."`
	Version  int                        `json:"version" jsonschema:"The version."`
	Steps    []string                   `json:"steps" jsonschema:"The steps, in the order of the definition."`
	Agents   []string                   `json:"agents" jsonschema:"The agents that the steps use."`
	Tasks    map[events.TaskState]int64 `json:"tasks" jsonschema:"The number of tasks by state."`
}

type workflowList struct {
	Workflows  []WorkflowView `json:"workflows" jsonschema:"The workflow versions."`
	AsOf       []events.AsOf  `json:"as_of" jsonschema:"The part of each partition that the counts reflect."`
	Incomplete []Incomplete   `json:"incomplete" jsonschema:"What the counts lack. Empty: nothing."`
}

// workflows lists the applied versions with their tasks. A version that has tasks is listed even if it was
// deleted.
func (c *call) workflows(*noParameters) (*workflowList, error) {
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
	progress, err := c.countPartitions(func(p int32, counts projections.Counts, next int64) {
		reflected[p] = next
		for key, states := range counts.Workflows {
			name, version := cutVersion(key)
			addCounts(of(name, version).Tasks, states)
		}
	})
	if err != nil {
		return nil, err
	}
	lacks, err := c.incompletePartitions(progress, nil)
	if err != nil {
		return nil, err
	}
	l := &workflowList{Workflows: []WorkflowView{}, AsOf: asOf(reflected), Incomplete: lacks}
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
			version, _ = strconv.Atoi(key[i+1:]) // the index wrote a number
			return key[:i], version
		}
	}
	return key, 0
}

func addCounts(sum, more map[events.TaskState]int64) {
	for state, n := range more {
		sum[state] += n
	}
}

// countPartitions passes the counters of each partition that is being read to fn. progress is how far the
// partitions were read before.
func (c *call) countPartitions(fn func(p int32, counts projections.Counts, next int64)) (progress map[int32]index.Progress, err error) {
	progress = c.cfg.Index.Progress()
	ps := startedPartitions(progress)
	if err := c.cfg.Index.Flush(c.r.Context(), ps...); err != nil {
		return nil, err
	}
	for _, p := range ps {
		counts, next, err := c.cfg.Index.Counts(p)
		if err != nil {
			return nil, err
		}
		fn(p, counts, next)
	}
	return progress, nil
}

// AgentView is an agent.
type AgentView struct {
	Agent      string `json:"agent" jsonschema:"The name of the agent."`
	Partitions int32  `json:"partitions" jsonschema:"The number of partitions of its request topic."`
	Members    int    `json:"members" jsonschema:"The number of processes that read its requests."`
	Lag        int64  `json:"lag" jsonschema:"The number of offsets of its request topic that its members haven't committed: unfinished requests and transaction markers."`
	InFlight   int64  `json:"in_flight" jsonschema:"The number of tasks with a running attempt of this agent, according to events."`
	Circuit    string `json:"circuit" enum:"closed,half-open,open,unknown" jsonschema:"The worst circuit of all downstreams of all members, as their commits report it. unknown: none reports it. Members that haven't worked yet don't, nor do those that aren't Waybill's."`
}

type agentList struct {
	Agents     []AgentView   `json:"agents" jsonschema:"The agents."`
	AsOf       []events.AsOf `json:"as_of" jsonschema:"The part of each partition that in_flight reflects."`
	Incomplete []Incomplete  `json:"incomplete" jsonschema:"What in_flight lacks. Empty: nothing."`
}

func (c *call) agents(*noParameters) (*agentList, error) {
	list, err := c.cfg.Cluster.Agents(c.r.Context())
	if err != nil {
		return nil, unavailable("the agents: %v", err)
	}
	reflected, inFlight := map[int32]int64{}, map[string]int64{}
	progress, err := c.countPartitions(func(p int32, counts projections.Counts, next int64) {
		reflected[p] = next
		for agent, n := range counts.Agents {
			inFlight[agent] += n
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].InFlight = inFlight[list[i].Agent]
	}
	lacks, err := c.incompletePartitions(progress, nil)
	return &agentList{list, asOf(reflected), lacks}, err
}

// PartitionView is a partition.
type PartitionView struct {
	Partition         int32    `json:"partition" jsonschema:"The number of the partition."`
	Owner             *string  `json:"owner" jsonschema:"The scheduler that owns the partition, according to its last claim. null: none has claimed it."`
	Epoch             uint64   `json:"epoch" jsonschema:"The epoch of the last claim."`
	Scheduler         *string  `json:"scheduler" jsonschema:"The scheduler to which Kafka has assigned the partition. null: none. It owns the partition once it has written to it."`
	SchedulerRestored *float64 `json:"scheduler_restored" jsonschema:"How much that scheduler has read of what it must read before it acts, from 0 to 1."`

	Lag       int64       `json:"lag" jsonschema:"The number of inputs that no scheduler has consumed."`
	Tasks     int64       `json:"tasks" jsonschema:"The number of tasks, open and ended."`
	OpenTasks int64       `json:"open_tasks" jsonschema:"The number of open tasks."`
	OldestDue *string     `json:"oldest_due" format:"date-time" jsonschema:"When the earliest timer is due. null: no timer is armed."`
	Restored  float64     `json:"restored" jsonschema:"How much of the partition the console has read, from 0 to 1."`
	AsOf      events.AsOf `json:"as_of" jsonschema:"The part of the partition that the answer reflects."`
	End       string      `json:"end" jsonschema:"The end of the partition of waybill.events, as a string."`
}

type partitionList struct {
	Partitions []PartitionView `json:"partitions" jsonschema:"The partitions."`
	Incomplete []Incomplete    `json:"incomplete" jsonschema:"What the answer lacks. Empty: nothing."`
}

func (c *call) partitions(*noParameters) (*partitionList, error) {
	scheduling, err := c.cfg.Cluster.Scheduling(c.r.Context())
	if err != nil {
		return nil, unavailable("the schedulers: %v", err)
	}
	l := &partitionList{Partitions: []PartitionView{}}
	read := c.cfg.Index.Progress()
	progress, err := c.countPartitions(func(p int32, counts projections.Counts, next int64) {
		l.Partitions = append(l.Partitions, partitionView(p, counts, next, read[p], scheduling[p]))
	})
	if err != nil {
		return nil, err
	}
	l.Incomplete, err = c.incompletePartitions(progress, nil)
	return l, err
}

func partitionView(p int32, counts projections.Counts, next int64, read index.Progress, by Scheduling) PartitionView {
	v := PartitionView{Partition: p, Epoch: counts.Epoch, Lag: by.Lag, Restored: 1, End: strconv.FormatInt(max(read.End, next), 10),
		AsOf: events.AsOf{Partition: p, Offset: strconv.FormatInt(next, 10)}, OldestDue: events.InstantText(counts.OldestDue)}
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
	if read.Behind {
		v.Restored = read.Restored()
	}
	return v
}
