package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafka/kafkametrics"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/schedule"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/supervisor"
)

// Metrics are the counters of a process. docs/reference/metrics.md is generated from their names and help texts.
type Metrics struct {
	registry           *prometheus.Registry
	health             *Health // probes are served with the metrics
	kafka              kafka.Hook
	tasksEnded         *prometheus.CounterVec
	transactions       *prometheus.CounterVec
	records            prometheus.Counter
	inputs             *prometheus.CounterVec
	deadletters        *prometheus.CounterVec
	recoveriesAsked    *prometheus.CounterVec
	recoveriesAccepted prometheus.Counter
	partitionsPaused   prometheus.Counter
	positions          *prometheus.CounterVec
	submissionsPaused  prometheus.Gauge
	inputsIgnored      *prometheus.CounterVec
	partitions         *prometheus.GaugeVec
	restores           *prometheus.HistogramVec
	restoring          *prometheus.GaugeVec
	indexBehind        *prometheus.GaugeVec
	idsRestored        prometheus.Histogram
	snapshots          *prometheus.CounterVec
	writtenBytes       *prometheus.CounterVec
	snapshotAt         *prometheus.GaugeVec
	commits            prometheus.Histogram
	lateness           prometheus.Histogram
	requests           *prometheus.CounterVec
	circuits           *prometheus.GaugeVec
	notified           *prometheus.CounterVec
	unreadable         *prometheus.CounterVec
	consoleDenied      prometheus.Counter
	storesDropped      *prometheus.CounterVec
	diskFree           *prometheus.GaugeVec
	stalled            *prometheus.GaugeVec
	timersArmed        *prometheus.GaugeVec
	endedKnown         *prometheus.GaugeVec
	idsForgotten       prometheus.Counter
	schedulesStarted   *prometheus.CounterVec
	schedulesSkipped   *prometheus.CounterVec
	schedulesLate      prometheus.Histogram
	clock              atomic.Pointer[brokerclock.Clock]
	agents             agentGauges
	intakes            intakeMetrics
	batches            batchMetrics
}

// NewMetrics registers all metrics.
func NewMetrics() *Metrics {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := &Metrics{registry: r, kafka: kafkametrics.Hook(r), health: newHealth()}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	count := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		r.MustRegister(g)
		return g
	}
	seconds := func(name, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)})
		r.MustRegister(h)
		return h
	}
	restores := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "waybill_restore_seconds",
		Help: "Time from the assignment of a partition until its inputs can be decided, by where its tasks came from.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}, []string{"from"})
	r.MustRegister(restores)
	m.restores = restores
	m.restoring = gauge("waybill_restore_remaining", "Offsets that the restore of a partition still has to read, once it has taken a second.", "partition")
	m.indexBehind = gauge("waybill_index_behind", "Offsets of events that the index of this console still has to read.", "partition")
	m.idsRestored = seconds("waybill_restore_ids_seconds", "Time from the assignment of a partition until its submissions can be decided, if its tasks came from a snapshot.")
	m.snapshots = vec("waybill_snapshots_total", "Snapshots of partitions, by result.", "result")
	m.writtenBytes = vec("waybill_written_bytes_total", "Bytes of the values of events and of snapshots in committed transactions.", "what")
	m.snapshotAt = gauge("waybill_snapshot_timestamp_seconds", "Unix time of the last decision in the newest snapshot of a partition.", "partition")
	m.tasksEnded = vec("waybill_tasks_ended_total", "Tasks that ended or were held (state error), by state.", "state")
	m.transactions = vec("waybill_transactions_total", "Transactions of the scheduler's workers, by result.", "result")
	m.records = count("waybill_transaction_records_total", "Records written in committed transactions.")
	m.inputs = vec("waybill_inputs_total", "Records that the scheduler consumed from the inboxes, by result. forwarded: sent to the right partition. reflected: consumed before, so it has no further effect.", "result")
	m.deadletters = vec("waybill_deadletters_total", "Records that could not be processed and became dead letters, by reason.", "reason")
	m.recoveriesAsked = vec("waybill_recoveries_asked_total", "Recoveries that the supervisor asked for, by action.", "action")
	m.recoveriesAccepted = count("waybill_recoveries_accepted_total", "Recoveries that the scheduler accepted.")
	m.inputsIgnored = vec("waybill_inputs_ignored_total", "Inputs that changed nothing because they were late, early or repeated, by reason.", "why")
	m.partitionsPaused = count("waybill_partition_pauses_total", "Times that a partition was paused because the brokers refused the records that its scheduler writes: no leader, or too few in-sync replicas.")
	m.positions = vec("waybill_inbox_position_faults_total", "Positions in inboxes that could not be used, by topic and fault. recreated: the topic was recreated. foreign: not committed by a scheduler. trimmed: records were deleted before they were read. cut: the log ends below the position, and the inbox isn't read.", "topic", "fault")
	m.submissionsPaused = prometheus.NewGauge(prometheus.GaugeOpts{Name: "waybill_submissions_paused",
		Help: "Workers that consume no submissions, because as many steps run or wait as --max-runnable allows."})
	r.MustRegister(m.submissionsPaused)
	m.partitions = gauge("waybill_partitions_owned", "Partitions that this process owns, by role.", "role")
	m.commits = seconds("waybill_commit_seconds", "Duration of a transaction's commit.")
	m.lateness = seconds("waybill_timer_lateness_seconds", "Time from when a timer is due until its recovery is sent.")
	m.addSchedules(vec, seconds)
	m.requests = vec("waybill_requests_total", "Requests that an agent finished, by agent and result.", "agent", "result")
	m.circuits = gauge("waybill_agent_circuit", "Circuit breakers of this agent process that have opened, by operation: 0 closed, 1 half-open, 2 open.", "agent", "circuit")
	m.notified = vec("waybill_notifications_total", "Notifications to reply_to topics, by result.", "result")
	m.stalled = gauge("waybill_partition_stalled_seconds", "Time for which records have waited in a partition whose worker makes no progress.", "topic", "partition")
	m.storesDropped = vec("waybill_stores_dropped_total", "Local stores of partitions that reflected more than the log has committed; they were dropped and restored from the log.", "role")
	m.diskFree = gauge("waybill_store_disk_free_ratio", "Free fraction of the disk under a store of this process, from 0 to 1, as of its last flush. A full disk ends the process.", "store")
	m.unreadable = vec("waybill_unreadable_total", "Unreadable events. The task of such an event stops there; other tasks continue.", "role")
	m.consoleDenied = count("waybill_console_denied_total", "Requests to a console with an invalid token.")
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "waybill_clock_offset_seconds",
		Help: "Seconds by which this process's clock is ahead of the brokers', including the delay of the fastest record of the last minute; 0 before the first record."}, m.clockOffset))
	m.intakes, m.batches = newIntakeMetrics(vec, gauge), newBatchMetrics(r, vec)
	m.addKnown(gauge, count)
	m.agents = agentGauges{byOwner: map[string][]scheduler.AgentFlow{},
		outstanding: gauge("waybill_agent_outstanding", "Requests of an agent whose attempts run, in this scheduler process.", "agent"),
		limit:       gauge("waybill_agent_concurrency_limit", "Concurrency limit of an agent: how many of its requests may be outstanding, in this scheduler process.", "agent"),
		queued:      gauge("waybill_agent_queued", "Steps that wait until their agent has a free slot, in this scheduler process.", "agent"),
		silent:      gauge("waybill_agent_silent", "Workers of this process that send only probes to an agent, because it doesn't reply.", "agent")}
	return m
}

// clockOffset is the offset of the process's clock, in seconds.
func (m *Metrics) clockOffset() float64 {
	clock := m.clock.Load()
	if clock == nil {
		return 0
	}
	return clock.Offset().Seconds()
}

// initCounters creates counters at zero. Rates and increases miss the first count of a counter that is created by
// it.
func initCounters[L ~string](of *prometheus.CounterVec, values ...L) {
	for _, v := range values {
		of.WithLabelValues(string(v))
	}
}

func (m *Metrics) hooks() []kafka.Hook { return []kafka.Hook{m.kafka} }

func (n *Instance) schedulerListener(status *partitionStatus) *scheduler.Listener {
	m := n.metrics
	m.beginScheduler()
	l := &scheduler.Listener{
		Committed:  m.committed,
		CommitTook: func(_ int, took time.Duration) { m.commits.Observe(took.Seconds()) },
		Aborted:    func() { m.transactions.WithLabelValues("aborted").Inc() },
		DecisionFailed: func(p int32, task, why string, stack []byte) {
			n.log.Error("task stopped, others continue: "+why+"; report it with this stack, and redrive the dead letters with a build that has the fix", "partition", p, "task", task, "stack", string(stack))
		},
		RecordRefused: func(topic string, err error) {
			advice := "check its topic with `waybill topics check`"
			if kafka.IsRefused(err) {
				advice = "check the ACLs of this process's principal"
			}
			n.log.Warn("record refused by the broker; "+advice, "topic", topic, "error", err)
		},
		PartitionPaused: func(p int32, wait time.Duration) {
			m.partitionsPaused.Inc()
			status.pauseFor(p, wait)
			n.log.Warn("partition paused, others continue: the brokers refused its records again, see the warning before", "partition", p, "wait", wait)
		},
		RequestTopicsFailed: func(err error) {
			n.log.Warn("request topics of agents can't be listed; the previous list is used", "error", err)
		},
		DefinitionsReadFailed: func(err error) {
			status.definitionsReadFailed()
			n.log.Warn("definitions can't be read; submissions of unknown workflows wait", "error", err)
		},
		Agents: m.agents.update,
		Admission: func(owner string, open bool, counted int, busiest []string) {
			status.setAdmission(owner, open)
			n.logAdmission(owner, open, counted, busiest)
		},
		WorkerFailed: func(owner string, err error) {
			status.workerFailed(owner)
			status.setAdmission(owner, true) // the next worker reports its own state
			m.transactions.WithLabelValues("failed").Inc()
			n.log.Log(context.Background(), failureLevel(err, slog.LevelWarn), "worker failed and is restarted", "owner", owner, "error", err)
		},
		Skew:       func(off time.Duration) { n.log.Warn("this machine's clock differs from the brokers'", "offset", off) },
		Recreated:  n.recordInboxRecreated,
		TrimFailed: func(topic string, err error) { n.log.Warn("inbox not trimmed", "topic", topic, "error", err) },
		Undelivered: func(topic string, err error) {
			m.notified.WithLabelValues("undelivered").Inc()
			n.log.Warn("notification not delivered", "topic", topic, "error", err)
		},
		Delivered: func() { m.notified.WithLabelValues("delivered").Inc() },
	}
	n.observePartitions(l, status)
	return l
}

// observePartitions sets the listener's callbacks about assigned partitions.
func (n *Instance) observePartitions(l *scheduler.Listener, status *partitionStatus) {
	m, owned := n.metrics, n.metrics.partitions.WithLabelValues("scheduler")
	l.Assigned = func(p int32) {
		owned.Inc()
		status.restoreStarted(p)
	}
	l.Lost = func(p int32) {
		owned.Dec()
		m.snapshotAt.DeleteLabelValues(strconv.Itoa(int(p))) // reported by its next owner
		m.endedKnown.DeleteLabelValues(strconv.Itoa(int(p)))
		status.partitionLost(p)
	}
	l.Ended = func(p int32, known, deleted int64) {
		m.endedKnown.WithLabelValues(strconv.Itoa(int(p))).Set(float64(known))
		m.idsForgotten.Add(float64(deleted))
	}
	l.Restored = func(p int32, from scheduler.Source, took time.Duration) {
		status.restoreEnded(p)
		status.setLoading(p, from == scheduler.FromSnapshot)
		m.health.markRestored("scheduler", p)
		m.restores.WithLabelValues(string(from)).Observe(took.Seconds())
		n.log.Debug("restore ended", "role", "scheduler", "partition", p, "from", from, "took", took)
	}
	l.FinishedLoaded = func(p int32, took time.Duration) {
		status.setLoading(p, false)
		m.idsRestored.Observe(took.Seconds())
		n.log.Debug("finished tasks loaded", "partition", p, "took", took)
	}
	l.SnapshotRefused = func(p int32, why error) {
		m.snapshots.WithLabelValues("refused").Inc()
		n.log.Warn("a partition's snapshot can't be used; the log is read instead", "partition", p, "why", why)
	}
	l.StoreAhead = func(p int32, why error) { n.reportStoreDropped("scheduler", p, why) }
	l.SnapshotFailed = func(p int32, why error) {
		m.snapshots.WithLabelValues("failed").Inc()
		n.log.Warn("no snapshot is written of a partition", "partition", p, "why", why)
	}
}

// logAdmission reports that a worker pauses submissions, or accepts them again.
func (n *Instance) logAdmission(owner string, open bool, counted int, busiest []string) {
	if open {
		n.metrics.submissionsPaused.Dec()
		n.log.Info("submissions are accepted again", "owner", owner, "counted", counted)
		return
	}
	n.metrics.submissionsPaused.Inc()
	n.log.Warn("submissions wait: as many steps are runnable as --max-runnable allows", "owner", owner, "counted", counted, "busiest_agents", busiest)
}

// beginScheduler creates the counters of a scheduler.
func (m *Metrics) beginScheduler() {
	initCounters(m.tasksEnded, events.StateProcessed, events.StateError, events.StateUndone, events.StateCancelled)
	initCounters(m.transactions, "committed", "aborted", "failed")
	initCounters(m.inputs, "decided", "forwarded", "reflected")
	initCounters(m.deadletters, events.Reasons...)
	initCounters(m.snapshots, "written", "refused", "failed")
	initCounters(m.writtenBytes, "events", "snapshots")
	initCounters(m.notified, "delivered", "undelivered")
	initCounters(m.storesDropped, "scheduler")
}

func (m *Metrics) committed(c scheduler.Committed) {
	m.transactions.WithLabelValues("committed").Inc()
	m.records.Add(float64(c.Records))
	m.inputs.WithLabelValues("decided").Add(float64(c.Inputs - c.Reflected - c.Forwarded))
	m.inputs.WithLabelValues("reflected").Add(float64(c.Reflected))
	m.inputs.WithLabelValues("forwarded").Add(float64(c.Forwarded))
	m.recoveriesAccepted.Add(float64(c.Recoveries))
	m.snapshots.WithLabelValues("written").Add(float64(c.Snapshots))
	m.writtenBytes.WithLabelValues("events").Add(float64(c.EventBytes))
	m.writtenBytes.WithLabelValues("snapshots").Add(float64(c.SnapshotBytes))
	for s, k := range c.Ended {
		m.tasksEnded.WithLabelValues(string(s)).Add(float64(k))
	}
	for why, k := range c.Ignored {
		m.inputsIgnored.WithLabelValues(string(why)).Add(float64(k))
	}
	for r, k := range c.Deadletters {
		m.deadletters.WithLabelValues(string(r)).Add(float64(k))
	}
}

func (n *Instance) workerListener(owner string) *schedulerworker.Listener {
	failed := n.logGroupFailure("scheduler " + owner)
	for _, topic := range n.Kafka.Namespace.InboxTopics() {
		for _, fault := range []groupmember.PositionFault{"recreated", groupmember.PositionForeign, groupmember.PositionTrimmed, groupmember.PositionCut, groupmember.PositionRolledBack} {
			n.metrics.positions.WithLabelValues(topic, string(fault)) // begins at zero, for rates
		}
	}
	return &schedulerworker.Listener{
		Assigned: func(added, lost []int32) { n.metrics.health.updateAssignment(workerHealthName(owner), added, lost) },
		GroupFailed: func(err error) {
			n.metrics.health.markLeft(workerHealthName(owner))
			failed(err)
		},
		SubscriptionMismatch: func(member string, topics []string) {
			n.log.Warn("a member of the scheduler group subscribes to other topics", "member", member, "topics", topics)
		},
		DataLost:    func(err error) { n.log.Error("the broker lost data that it had acknowledged", "error", err) },
		LeaveFailed: n.logLeaveFailed(owner),
		Corrupt:     n.reportUnreadablePartition,
		Position:    n.recordPositionFault,
		OffsetsUnstable: func(ps []int32) {
			n.log.Warn("an open transaction holds back the group's offsets, so the partitions wait; if it persists, `waybill doctor` shows what to abort", "owner", owner, "partitions", ps)
		},
	}
}

func (n *Instance) recordInboxRecreated(p int32, topic string, reflected int64, was, is string) {
	n.metrics.positions.WithLabelValues(topic, "recreated").Inc()
	n.log.Warn("an inbox was deleted and created again; it is read from its start", "topic", topic, "partition", p, "reflected_before", reflected, "topic_id_before", was, "topic_id", is)
}

// recordPositionFault logs and counts a fault of the position from which an inbox was to be read.
func (n *Instance) recordPositionFault(at groupmember.Position, fault groupmember.PositionFault) {
	n.metrics.positions.WithLabelValues(at.Topic, string(fault)).Inc()
	log := n.log.With("topic", at.Topic, "partition", at.Partition, "position", at.Offset, "log_start", at.Start, "log_end", at.End)
	switch fault {
	case groupmember.PositionForeign:
		log.Warn("a position of the scheduler group was not committed by a scheduler to this topic; it is not used: the inbox is read from its start, and what events reflect is skipped", "metadata", at.Metadata)
	case groupmember.PositionTrimmed:
		log.Error("records of an inbox were deleted before they were read; check its retention with `waybill topics check`; their senders must send them again")
	case groupmember.PositionRolledBack:
		log.Error("a position of the scheduler group belongs to a transaction that the log of events has rolled back; it is not used: the inbox is read from its start, and what events reflect is skipped", "metadata", at.Metadata)
	case groupmember.PositionCut:
		log.Error("an inbox is not read: its log ends below the position up to which it was read, so it was truncated or restored from a copy, and new records can't be told from old ones; `waybill doctor` shows what to do")
	}
}

func (n *Instance) restoreListener(status *partitionStatus) *logreader.RestoreListener {
	return &logreader.RestoreListener{
		Progress: status.restoreProgressed,
		Blocked: func(topic string, p int32, stable, end int64) {
			n.log.Info("a transaction is still open", "topic", topic, "partition", p, "stable", stable, "end", end)
		},
		Fenced: func(id string) { n.log.Info("fenced a dead owner", "transactional_id", id) },
		NotFenced: func(topic string, p int32, err error) {
			n.log.Warn("an open transaction could not be aborted; waiting for its end", "topic", topic, "partition", p, "error", err)
		},
		Corrupt: func(d *logreader.CorruptError) {
			status.recordCorrupt(d.Topic, d.Partition, d)
			n.logUnreadablePartition(d)
		},
	}
}

// logUnreadablePartition logs that a partition makes no progress because of unreadable records.
func (n *Instance) logUnreadablePartition(err error) {
	n.log.Error("partition stopped: its broker returns unreadable records; make another replica the leader, or restore the broker's data from a copy", "error", err)
}

func (n *Instance) followerListener(who string) *logreader.FollowerListener {
	health, goesOn := n.metrics.health, n.logGroupFailure(who)
	return &logreader.FollowerListener{Corrupt: n.reportUnreadablePartition, LeaveFailed: n.logLeaveFailed(who),
		Assigned: func(added, lost []int32) { health.updateAssignment(who, added, lost) },
		GroupFailed: func(err error) {
			health.markLeft(who)
			goesOn(err)
		}}
}

// logLeaveFailed logs that a member stopped without leaving its group, so that its partitions wait for the session
// timeout.
func (n *Instance) logLeaveFailed(who string) func(error) {
	return func(err error) { n.log.Warn("stopped without leaving the group", "of", who, "error", err) }
}

// logGroupFailure logs that a membership ended or that brokers don't respond. The client joins again.
func (n *Instance) logGroupFailure(who string) func(error) {
	return func(err error) {
		n.log.Log(context.Background(), failureLevel(err, slog.LevelInfo), "group session failed; the client joins again", "of", who, "error", err)
	}
}

// failureLevel is the log level of an error that is retried: one that needs an operator is logged as an error.
func failureLevel(err error, usual slog.Level) slog.Level {
	if kafka.IsRefused(err) {
		return slog.LevelError
	}
	return usual
}

func (n *Instance) reportUnreadablePartition(topic string, p int32, err error) {
	if _, says := errors.AsType[*logreader.CorruptError](err); !says {
		err = fmt.Errorf("topic %s partition %d: %w", topic, p, err)
	}
	n.logUnreadablePartition(err)
}

func (n *Instance) supervisorListener() *supervisor.Listener {
	m, owned := n.metrics, n.metrics.partitions.WithLabelValues("supervisor")
	initCounters(m.recoveriesAsked, events.Actions...)
	initCounters(m.recoveriesAsked, events.ActionForget)
	initCounters(m.unreadable, "supervisor")
	initCounters(m.storesDropped, "supervisor")
	initCounters(m.schedulesStarted, string(schedule.Due), string(schedule.Queue), string(schedule.Triggered), string(schedule.Backfilled))
	initCounters(m.schedulesSkipped, string(schedule.Overlapped), string(schedule.Missed), string(schedule.Replaced), string(schedule.Failed), string(schedule.TooMany))
	return &supervisor.Listener{
		Assigned: func(int32) { owned.Inc() },
		Lost: func(p int32) {
			owned.Dec()
			m.timersArmed.DeleteLabelValues(strconv.Itoa(int(p))) // reported by its next owner
		},
		Restored: func(p int32, _ time.Duration) { m.health.markRestored("supervisor", p) },
		Snapshot: func(p int32, timers int) {
			n.log.Info("deadlines taken from the scheduler's snapshot", "partition", p, "armed", timers)
		},
		SnapshotRefused: func(p int32, why error) {
			n.log.Warn("snapshot not used; the log is read instead", "role", "supervisor", "partition", p, "error", why)
		},
		Asked: func(a events.Action) { m.recoveriesAsked.WithLabelValues(string(a)).Inc() },
		Late:  func(d time.Duration) { m.lateness.Observe(d.Seconds()) },
		Armed: func(p int32, timers int) { m.timersArmed.WithLabelValues(strconv.Itoa(int(p))).Set(float64(timers)) },
		SendFailed: func(p int32, err error) {
			n.log.Log(context.Background(), failureLevel(err, slog.LevelWarn), "recoveries not written; they are retried", "partition", p, "error", err)
		},
		CommitFailed: func(err error) {
			n.log.Log(context.Background(), failureLevel(err, slog.LevelWarn), "positions not committed", "role", "supervisor", "error", err)
		},
		Unreadable: func(p int32, err error) {
			m.unreadable.WithLabelValues("supervisor").Inc()
			n.log.Error("unreadable event; its task stops here", "partition", p, "error", err)
		},
		Skew: func(skew time.Duration) { n.log.Warn("this machine's clock differs from the brokers'", "offset", skew) },
	}
}

func (n *Instance) sessionListener(who string) agentsession.Listener {
	return agentsession.Listener{
		Joined:         func() { n.metrics.health.updateAssignment(who, nil, nil) },
		TransientError: n.logGroupFailure(who),
	}
}

func (n *Instance) agentListener(name string) agent.Listener {
	initCounters(n.metrics.requests.MustCurryWith(prometheus.Labels{"agent": name}), "completed", "failed", "rejected", "progress", "late", "dropped", "retried", "abandoned",
		"panicked", "send_failed", "malformed")
	count := func(result string) { n.metrics.requests.WithLabelValues(name, result).Inc() }
	log := n.log.With("agent", name)
	return agent.Listener{
		Left: func(reason error) {
			n.metrics.health.markLeft("agent." + name)
			log.Info("left the group", "reason", reason)
		},
		JoinFailed: func(err error, wait time.Duration) {
			log.Log(context.Background(), failureLevel(err, slog.LevelWarn), "can't join the group again", "error", err, "retry_after", wait)
		},
		Unhealthy:  func(err error, failures int) { log.Warn("agent is unhealthy", "failures", failures, "error", err) },
		Finished:   func(_ agent.Request, o events.Outcome, _ time.Duration) { count(string(o)) },
		Progressed: func(agent.Request) { count("progress") },
		Late:       func(agent.Request, time.Duration) { count("late") },
		Dropped:    func(agent.Request) { count("dropped") },
		Retried:    func(agent.Request, error, int, time.Duration) { count("retried") },
		Abandoned:  func(agent.Request) { count("abandoned") },
		Panicked: func(r agent.Request, value any, stack []byte) {
			count("panicked")
			log.Error("handler panicked", "request", r.ID, "value", value, "stack", string(stack))
		},
		SendFailed: func(r agent.Request, err error) {
			count("send_failed")
			level := failureLevel(err, slog.LevelWarn)
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				level = slog.LevelDebug // the attempt has expired: no reply is expected
			}
			log.Log(context.Background(), level, "reply not acknowledged", "request", r.ID, "error", err)
		},
		Malformed: func(rec events.Record, err error) {
			count("malformed")
			log.Warn("record is not a request", "record", events.Origin(&rec), "error", err)
		},
		CircuitChanged: func(downstream, from, to string) {
			log.Warn("circuit breaker changed", "downstream", downstream, "from", from, "to", to)
			n.metrics.circuits.WithLabelValues(name, downstream).Set(map[string]float64{agent.CircuitHalfOpen: 1, agent.CircuitOpen: 2}[to])
		},
	}
}

// addKnown registers the metrics of what stores know of tasks.
func (m *Metrics) addKnown(gauge func(name, help string, labels ...string) *prometheus.GaugeVec, count func(name, help string) prometheus.Counter) {
	m.timersArmed = gauge("waybill_timers_armed", "Timers that the supervisor watches.", "partition")
	m.endedKnown = gauge("waybill_ended_tasks_known", "Ended tasks whose ids the scheduler knows, so that a repeated submission starts no second task.", "partition")
	m.idsForgotten = count("waybill_ids_forgotten_total", "Ids of ended tasks that the scheduler deleted from its store after an event that forgets them.")
}
