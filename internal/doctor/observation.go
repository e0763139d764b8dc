package doctor

import (
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// Observation is everything that the doctor measured.
type Observation struct {
	Namespace events.Namespace
	Exists    bool // the namespace has topics
	Brokers   int
	Replicas  kafkaadmin.ReplicaStatus
	// Leaderless are the partitions without a leader, by topic. If the definitions' partition is among them, nothing
	// below was observed.
	Leaderless map[string][]int32
	Topics     []kafkaadmin.Finding
	Positions  []kafkaadmin.PositionFinding
	Workflows  []string // usable definitions, NAME/VERSION
	Unusable   []string // the definitions that this build can't use, and why
	Deprecated []string // the schedules and intakes that name a deprecated version
	Missing    []string // the schedules and intakes that name a workflow that isn't applied
	Intakes    []intake.IntakeStatus
	Schedules  Schedules
	Batches    Batches
	Activity
	// ConsoleAddr is where a local console was looked for, and Console its URL; empty: none answers.
	ConsoleAddr, Console string
	// Deadletters and Alerts were written in the last hour. InvalidAlerts are records of the alerts topic that aren't
	// alerts.
	Deadletters, Alerts, InvalidAlerts int
}

// Activity is what changes while the system works. It is observed twice if there is a backlog.
type Activity struct {
	Scheduler, Supervisor, Notifier Group
	Agents                          map[string]Group
	Restoring                       map[int32]float64 // progress of restores, 0 to 1, by partition
	// ReadersHeldAt is the offset at which an open transaction holds readers, by partition of events. After a second
	// observation it has only those that stayed.
	ReadersHeldAt  map[int32]int64
	Unstable       []int32 // partitions whose offsets an open transaction holds back
	Hanging        []*logreader.HangingError
	HangingUnknown error // why hanging transactions couldn't be listed
}

// Group is the state of a consumer group.
type Group struct {
	Members int
	Unowned []int32                    // partitions without a member
	Commits map[string]map[int32]int64 // offsets, by topic and partition
	Lags    map[string]map[int32]int64 // records, by topic and partition
	Lag     int64                      // the sum of Lags
	Circuit string                     // of an agent: the worst that a member reports

	Moved   bool     // a committed offset moved between two observations
	Stalled []string // topic/partition with a lag and without progress between two observations

	// Submissions is the scheduler's lag in the tasks inbox. SubmissionsMoved: that inbox's offsets moved.
	Submissions      int64
	SubmissionsMoved bool
}

// hasBacklog reports whether a group has a lag, so that the doctor must measure its progress.
func (a *Activity) hasBacklog() bool {
	lag := a.Scheduler.Lag + a.Supervisor.Lag + a.Notifier.Lag + int64(len(a.ReadersHeldAt))
	for _, g := range a.Agents {
		lag += g.Lag
	}
	return lag > 0
}

// compareWith records what moved since an earlier observation. tasks is the topic of submissions.
func (a *Activity) compareWith(before *Activity, tasks string) {
	a.Scheduler.compareWith(before.Scheduler)
	a.Scheduler.SubmissionsMoved = !maps.Equal(a.Scheduler.Commits[tasks], before.Scheduler.Commits[tasks])
	a.Supervisor.compareWith(before.Supervisor)
	a.Notifier.compareWith(before.Notifier)
	for name, g := range a.Agents {
		g.compareWith(before.Agents[name])
		a.Agents[name] = g
	}
	for p, at := range a.ReadersHeldAt {
		if was, held := before.ReadersHeldAt[p]; !held || was != at {
			delete(a.ReadersHeldAt, p)
		}
	}
}

func (g *Group) compareWith(before Group) {
	for topic, ps := range g.Commits {
		g.Moved = g.Moved || !maps.Equal(ps, before.Commits[topic])
	}
	for topic, ps := range g.Lags {
		for p, lag := range ps {
			at, committed := g.Commits[topic][p]
			was, committedBefore := before.Commits[topic][p]
			if lag > 0 && before.Lags[topic][p] > 0 && committed == committedBefore && at == was {
				g.Stalled = append(g.Stalled, fmt.Sprintf("%s/%d", topic, p))
			}
		}
	}
	slices.Sort(g.Stalled)
}
