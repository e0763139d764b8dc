package console

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/index"
	"github.com/waybill-run/waybill/projections"
)

// workflows lists the applied versions with their tasks. A version that has tasks is listed even if it was
// deleted.
func (c *call) workflows(*noParameters) (*consoleapi.WorkflowList, error) {
	views, reflected := map[string]*consoleapi.Workflow{}, map[int32]int64{}
	of := func(name string, version int) *consoleapi.Workflow {
		key := name + "/" + strconv.Itoa(version)
		if views[key] == nil {
			views[key] = &consoleapi.Workflow{Workflow: name, Version: version, Steps: []string{}, Agents: []string{}, Tasks: map[events.TaskState]int64{}}
		}
		return views[key]
	}
	for _, w := range c.cfg.Cluster.Workflows() {
		v := of(w.Name, w.Version)
		v.Steps, v.Agents, v.Deprecated = w.Steps, w.Agents, w.Deprecated
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
	l := &consoleapi.WorkflowList{Workflows: []consoleapi.Workflow{}, AsOf: reflectedOffsets(reflected), Incomplete: lacks}
	for _, v := range views {
		l.Workflows = append(l.Workflows, *v)
	}
	slices.SortFunc(l.Workflows, func(a, b consoleapi.Workflow) int {
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

// sampleMaxAge bounds the age of what a list tells of Kafka's groups. The groups are asked once for all callers within
// this time, and not while nobody calls.
const sampleMaxAge = 2 * time.Second

// instantOf is the brokers' time at an instant of this machine's clock.
func (c *call) instantOf(at time.Time) *string {
	return events.InstantText(c.cfg.Now().Add(-time.Since(at)))
}

func (c *call) agents(*noParameters) (*consoleapi.AgentList, error) {
	sampled, at, err := c.sampledAgents.get(c.r.Context(), time.Now().Add(-sampleMaxAge), c.timeouts.answer)
	if err != nil {
		return nil, unavailable("can't describe the agents: %v", err)
	}
	list := append([]consoleapi.Agent{}, sampled...)
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
	return &consoleapi.AgentList{Agents: list, SampledAt: c.instantOf(at), AsOf: reflectedOffsets(reflected), Incomplete: lacks}, err
}

func (c *call) partitions(*noParameters) (*consoleapi.PartitionList, error) {
	scheduling, at, err := c.sampledScheduling.get(c.r.Context(), time.Now().Add(-sampleMaxAge), c.timeouts.answer)
	if err != nil {
		return nil, unavailable("can't describe the schedulers: %v", err)
	}
	l := &consoleapi.PartitionList{Partitions: []consoleapi.Partition{}, SampledAt: c.instantOf(at)}
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

func partitionView(p int32, counts projections.Counts, next int64, read index.Progress, by Scheduling) consoleapi.Partition {
	v := consoleapi.Partition{Partition: p, Epoch: counts.Epoch, Lag: by.Lag, Restored: 1, End: strconv.FormatInt(max(read.End, next), 10),
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
