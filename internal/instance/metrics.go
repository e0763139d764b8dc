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
	"github.com/waybill-run/waybill/internal/kafka/kafkametrics"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/supervisor"
)

// Metrics is what a process counts. docs/reference/metrics.md is generated from these names and help texts.
type Metrics struct {
	registry     *prometheus.Registry
	health       *Health // of the process, which the same server tells
	kafka        kafka.Hook
	ended        *prometheus.CounterVec
	transactions *prometheus.CounterVec
	records      prometheus.Counter
	inputs       *prometheus.CounterVec
	deadletters  *prometheus.CounterVec
	asked        *prometheus.CounterVec
	accepted     prometheus.Counter
	aside        prometheus.Counter
	positions    *prometheus.CounterVec
	paused       prometheus.Gauge
	ignored      *prometheus.CounterVec
	partitions   *prometheus.GaugeVec
	restores     *prometheus.HistogramVec
	restoring    *prometheus.GaugeVec
	indexBehind  *prometheus.GaugeVec
	loads        prometheus.Histogram
	snapshots    *prometheus.CounterVec
	written      *prometheus.CounterVec
	snapshotAt   *prometheus.GaugeVec
	commits      prometheus.Histogram
	lateness     prometheus.Histogram
	requests     *prometheus.CounterVec
	circuits     *prometheus.GaugeVec
	notified     *prometheus.CounterVec
	poison       *prometheus.CounterVec
	denied       prometheus.Counter
	dropped      *prometheus.CounterVec
	standing     *prometheus.GaugeVec
	armed        *prometheus.GaugeVec
	clock        atomic.Pointer[kafka.Clock]
	flows        flows
}

// NewMetrics are metrics that have counted nothing.
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
		Help: "Time from the assignment of a partition to the first input that it may decide, by where its tasks came from.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}, []string{"from"})
	r.MustRegister(restores)
	m.restores = restores
	m.restoring = gauge("waybill_restore_remaining", "Offsets that the restore of a partition has still to read, once it has taken a second.", "partition")
	m.indexBehind = gauge("waybill_index_behind", "Offsets of events that the index of this console has still to read.", "partition")
	m.loads = seconds("waybill_restore_ids_seconds", "Time from the assignment of a partition to the first submission that it may decide, if its tasks came from a snapshot.")
	m.snapshots = vec("waybill_snapshots_total", "Snapshots of partitions, by result.", "result")
	m.written = vec("waybill_written_bytes_total", "Bytes of the values of events and of snapshots in committed transactions.", "what")
	m.snapshotAt = gauge("waybill_snapshot_timestamp_seconds", "Unix time of the last decision in the newest snapshot of a partition.", "partition")
	m.ended = vec("waybill_tasks_ended_total", "Tasks that ended or were held (state error), by state.", "state")
	m.transactions = vec("waybill_transactions_total", "Transactions of the scheduler's workers, by result.", "result")
	m.records = count("waybill_transaction_records_total", "Records written in committed transactions.")
	m.inputs = vec("waybill_inputs_total", "Records that the scheduler consumed from the inboxes: decided, forwarded, or reflected already.", "result")
	m.deadletters = vec("waybill_deadletters_total", "Records that could not be processed and became dead letters, by reason.", "reason")
	m.asked = vec("waybill_recoveries_asked_total", "Recoveries that the supervisor asked for, by action.", "action")
	m.accepted = count("waybill_recoveries_accepted_total", "Recoveries that the scheduler accepted.")
	m.ignored = vec("waybill_inputs_ignored_total", "Inputs that were late, repeated or early and changed nothing, by reason.", "why")
	m.aside = count("waybill_partitions_set_aside_total", "Times that a partition's inputs had to wait because the cluster refused the records that follow from them: no leader, or too few replicas.")
	m.positions = vec("waybill_inbox_position_faults_total", "Positions in inboxes that could not be used, by topic and fault. recreated: the topic is a new one. foreign: not committed by a scheduler. trimmed: records were deleted before they were read. cut: the log ends below the position, and the inbox isn't read.", "topic", "fault")
	m.paused = prometheus.NewGauge(prometheus.GaugeOpts{Name: "waybill_submissions_paused",
		Help: "Workers that consume no submissions, because agents have as much to do as --max-runnable allows."})
	r.MustRegister(m.paused)
	m.partitions = gauge("waybill_partitions_owned", "Partitions that this process owns, by role.", "role")
	m.commits = seconds("waybill_commit_seconds", "Duration of a transaction's commit.")
	m.lateness = seconds("waybill_timer_lateness_seconds", "Time from when a timer is due to when its recovery is sent.")
	m.requests = vec("waybill_requests_total", "Requests that an agent finished, by agent and result.", "agent", "result")
	m.circuits = gauge("waybill_agent_circuit", "Circuit breakers of this agent process that have opened, by operation: 0 closed, 1 half-open, 2 open.", "agent", "circuit")
	m.notified = vec("waybill_notifications_total", "Notifications to reply_to topics, by result.", "result")
	m.standing = gauge("waybill_partition_standing_seconds", "Time for which records have waited in a partition while its worker makes no progress.", "topic", "partition")
	m.dropped = vec("waybill_stores_dropped_total", "Local stores of partitions that reflected more than the log has committed; they were dropped and restored from the log.", "role")
	m.poison = vec("waybill_poison_total", "Unreadable events: their tasks stop there, others go on.", "role")
	m.denied = count("waybill_console_denied_total", "Requests to a console with an invalid token.")
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "waybill_clock_offset_seconds",
		Help: "Seconds by which this process's clock is ahead of the brokers', including the delay of the fastest record of the last minute; 0 before the first."}, m.clockOffset))
	m.armed = gauge("waybill_timers_armed", "Timers that the supervisor watches.", "partition")
	m.flows = flows{of: map[string][]scheduler.AgentFlow{},
		outstanding: gauge("waybill_agent_outstanding", "Requests of an agent whose attempts run, in this scheduler process.", "agent"),
		bound:       gauge("waybill_agent_bound", "Concurrency limit of an agent: how many of its requests may be outstanding, in this scheduler process.", "agent"),
		queued:      gauge("waybill_agent_queued", "Steps that wait until their agent has a free slot, in this scheduler process.", "agent"),
		silent:      gauge("waybill_agent_silent", "Workers of this process that send only probes to an agent, because it has been silent.", "agent")}
	return m
}

// clockOffset is that of the process whose metrics these are.
func (m *Metrics) clockOffset() float64 {
	clock := m.clock.Load()
	if clock == nil {
		return 0
	}
	return clock.Offset().Seconds()
}

// zero has counters begin at zero: of one that comes into being with its first count, rates and
// increases are without that count.
func zero[L ~string](of *prometheus.CounterVec, values ...L) {
	for _, v := range values {
		of.WithLabelValues(string(v))
	}
}

func (m *Metrics) hooks() []kafka.Hook { return []kafka.Hook{m.kafka} }

func (n *Instance) schedulerListener(restoring *restoring) *scheduler.Listener {
	m := n.metrics
	m.beginScheduler()
	l := &scheduler.Listener{
		Committed:  m.committed,
		CommitTook: func(_ int, took time.Duration) { m.commits.Observe(took.Seconds()) },
		Aborted:    func() { m.transactions.WithLabelValues("aborted").Inc() },
		RecordRefused: func(topic string, err error) {
			n.log.Warn("record refused; `waybill topics check` says whether its topic is as it should be", "topic", topic, "error", err)
		},
		PartitionPaused: func(p int32, wait time.Duration) {
			m.aside.Inc()
			restoring.waitsFor(p, wait)
			n.log.Warn("partition waits, others go on: what follows from its inputs was refused again; `waybill doctor` says what has no leader", "partition", p, "wait", wait)
		},
		RequestTopicsFailed: func(err error) {
			n.log.Warn("the agents' topics can't be listed; those that were known are used", "error", err)
		},
		DefinitionsReadFailed: func(err error) {
			restoring.definitionsUnread()
			n.log.Warn("definitions can't be read to their end; submissions of unknown workflows wait", "error", err)
		},
		Agents: m.flows.take,
		Admission: func(owner string, open bool, counted int, busiest []string) {
			restoring.admission(owner, open)
			n.admission(owner, open, counted, busiest)
		},
		WorkerFailed: func(owner string, err error) {
			restoring.failed(owner)
			restoring.admission(owner, true) // the next one says what it finds
			m.transactions.WithLabelValues("failed").Inc()
			n.log.Log(context.Background(), levelOf(err, slog.LevelWarn), "worker begins anew", "owner", owner, "error", err)
		},
		StoreFailed: func(err error) { n.log.Error("partition not saved; it will be read again", "error", err) },
		Skew:        func(off time.Duration) { n.log.Warn("clock", "offset", off) },
		Recreated:   n.inboxRecreated,
		TrimFailed:  func(topic string, err error) { n.log.Warn("inbox not trimmed", "topic", topic, "error", err) },
		Undelivered: func(topic string, err error) {
			m.notified.WithLabelValues("undelivered").Inc()
			n.log.Warn("notification not delivered", "topic", topic, "error", err)
		},
		Delivered: func() { m.notified.WithLabelValues("delivered").Inc() },
	}
	n.observePartitions(l, restoring)
	return l
}

// observePartitions has a listener tell of a scheduler's partitions, from where they come to where they go.
func (n *Instance) observePartitions(l *scheduler.Listener, restoring *restoring) {
	m, owned := n.metrics, n.metrics.partitions.WithLabelValues("scheduler")
	l.Assigned = func(p int32) {
		owned.Inc()
		restoring.came(p)
	}
	l.Lost = func(p int32) {
		owned.Dec()
		m.snapshotAt.DeleteLabelValues(strconv.Itoa(int(p))) // its next owner tells of it
		restoring.lost(p)
	}
	l.Restored = func(p int32, from scheduler.Source, took time.Duration) {
		restoring.restored(p)
		m.health.restored("scheduler", p)
		restoring.loads(p, from == scheduler.FromSnapshot)
		m.health.restored("scheduler", p)
		m.restores.WithLabelValues(string(from)).Observe(took.Seconds())
		n.log.Debug("partition restored", "role", "scheduler", "partition", p, "from", from, "took", took)
	}
	l.FinishedLoaded = func(p int32, took time.Duration) {
		restoring.loads(p, false)
		m.loads.Observe(took.Seconds())
		n.log.Debug("finished tasks loaded", "partition", p, "took", took)
	}
	l.SnapshotRefused = func(p int32, why error) {
		m.snapshots.WithLabelValues("refused").Inc()
		n.log.Warn("a partition's snapshot can't be used; the log is read instead", "partition", p, "why", why)
	}
	l.StoreAhead = func(p int32, why error) { n.storeAhead("scheduler", p, why) }
	l.SnapshotFailed = func(p int32, why error) {
		m.snapshots.WithLabelValues("failed").Inc()
		n.log.Warn("no snapshot is written of a partition", "partition", p, "why", why)
	}
}

// admission tells that a worker pauses submissions, or takes them again.
func (n *Instance) admission(owner string, open bool, counted int, busiest []string) {
	if open {
		n.metrics.paused.Dec()
		n.log.Info("submissions flow again", "owner", owner, "counted", counted)
		return
	}
	n.metrics.paused.Inc()
	n.log.Warn("submissions wait: agents have as much at work as --max-runnable allows", "owner", owner, "counted", counted, "busiest_agents", busiest)
}

// beginScheduler has the counters of a scheduler begin at zero.
func (m *Metrics) beginScheduler() {
	zero(m.ended, events.StateProcessed, events.StateError, events.StateUndone, events.StateCancelled)
	zero(m.transactions, "committed", "aborted", "failed")
	zero(m.inputs, "decided", "forwarded", "reflected")
	zero(m.deadletters, events.Reasons...)
	zero(m.snapshots, "written", "refused", "failed")
	zero(m.written, "events", "snapshots")
	zero(m.notified, "delivered", "undelivered")
	zero(m.dropped, "scheduler")
}

func (m *Metrics) committed(c scheduler.Committed) {
	m.transactions.WithLabelValues("committed").Inc()
	m.records.Add(float64(c.Records))
	m.inputs.WithLabelValues("decided").Add(float64(c.Inputs - c.Reflected - c.Forwarded))
	m.inputs.WithLabelValues("reflected").Add(float64(c.Reflected))
	m.inputs.WithLabelValues("forwarded").Add(float64(c.Forwarded))
	m.accepted.Add(float64(c.Recoveries))
	m.snapshots.WithLabelValues("written").Add(float64(c.Snapshots))
	m.written.WithLabelValues("events").Add(float64(c.EventBytes))
	m.written.WithLabelValues("snapshots").Add(float64(c.SnapshotBytes))
	for s, k := range c.Ended {
		m.ended.WithLabelValues(string(s)).Add(float64(k))
	}
	for why, k := range c.Ignored {
		m.ignored.WithLabelValues(string(why)).Add(float64(k))
	}
	for r, k := range c.Deadletters {
		m.deadletters.WithLabelValues(string(r)).Add(float64(k))
	}
}

func (n *Instance) workerListener(owner string) *kafka.WorkerListener {
	failed := n.groupGoesOn("scheduler " + owner)
	for _, topic := range n.Kafka.Namespace.InboxTopics() {
		for _, fault := range []kafka.PositionFault{"recreated", kafka.PositionForeign, kafka.PositionTrimmed, kafka.PositionCut, kafka.PositionRolledBack} {
			n.metrics.positions.WithLabelValues(topic, string(fault)) // begins at zero, for rates
		}
	}
	return &kafka.WorkerListener{
		Assigned: func(added, lost []int32) { n.metrics.health.assigned(workerName(owner), added, lost) },
		GroupFailed: func(err error) {
			n.metrics.health.left(workerName(owner))
			failed(err)
		},
		SubscriptionMismatch: func(member string, topics []string) {
			n.log.Warn("a member of the scheduler group reads other topics", "member", member, "topics", topics)
		},
		DataLost:    func(err error) { n.log.Error("the broker lost data that it had acknowledged", "error", err) },
		LeaveFailed: n.leaveFailed(owner),
		Damaged:     n.partitionStandsStill,
		Position:    n.positionFault,
		OffsetsUnstable: func(ps []int32) {
			n.log.Warn("an open transaction holds back the group's offsets, and with them the partitions; if it stays, `waybill doctor` says what to abort", "owner", owner, "partitions", ps)
		},
	}
}

func (n *Instance) inboxRecreated(p int32, topic string, reflected int64, was, is string) {
	n.metrics.positions.WithLabelValues(topic, "recreated").Inc()
	n.log.Warn("an inbox was deleted and created again; it is read from its start", "topic", topic, "partition", p, "reflected_before", reflected, "topic_id_before", was, "topic_id", is)
}

// positionFault logs and counts what is wrong with where an inbox was to be read from.
func (n *Instance) positionFault(at kafka.Position, fault kafka.PositionFault) {
	n.metrics.positions.WithLabelValues(at.Topic, string(fault)).Inc()
	log := n.log.With("topic", at.Topic, "partition", at.Partition, "position", at.Offset, "log_start", at.Start, "log_end", at.End)
	switch fault {
	case kafka.PositionForeign:
		log.Warn("a position of the scheduler group was not committed by a scheduler to this topic; it is not used: the inbox is read from its start, and what events reflect is skipped", "metadata", at.Metadata)
	case kafka.PositionTrimmed:
		log.Error("records of an inbox were deleted before they were read; `waybill topics check` says whether its retention is wrong, and who sent them must send them again")
	case kafka.PositionRolledBack:
		log.Error("a position of the scheduler group is of a transaction that was rolled back in the log of events; it is not used: the inbox is read from its start, and what events reflect is skipped", "metadata", at.Metadata)
	case kafka.PositionCut:
		log.Error("an inbox is not read: its log ends below what was read of it, so it was cut off or brought back from a copy, and new records there can't be told from old ones; `waybill doctor` says what to do")
	}
}

func (n *Instance) restoreListener(restoring *restoring) *kafka.RestoreListener {
	return &kafka.RestoreListener{
		Progress: restoring.underWay,
		Blocked: func(topic string, p int32, stable, end int64) {
			n.log.Info("a transaction is still open", "topic", topic, "partition", p, "stable", stable, "end", end)
		},
		Fenced: func(id string) { n.log.Info("fenced a dead owner", "transactional_id", id) },
		NotFenced: func(topic string, p int32, err error) {
			n.log.Warn("an open transaction isn't ended; waiting for it", "topic", topic, "partition", p, "error", err)
		},
		Damaged: func(d *kafka.DamagedError) {
			restoring.damaged(d.Topic, d.Partition, d)
			n.standsStill(d)
		},
	}
}

// standsStill tells of a partition of which something can't be read.
func (n *Instance) standsStill(err error) {
	n.log.Error("the partition stands still: its broker doesn't have what was written; let another replica lead, or bring the broker's data back from a copy", "error", err)
}

func (n *Instance) followerListener(who string) *kafka.FollowerListener {
	health, goesOn := n.metrics.health, n.groupGoesOn(who)
	return &kafka.FollowerListener{Damaged: n.partitionStandsStill, LeaveFailed: n.leaveFailed(who),
		Assigned: func(added, lost []int32) { health.assigned(who, added, lost) },
		GroupFailed: func(err error) {
			health.left(who)
			goesOn(err)
		}}
}

// leaveFailed logs that the others wait for a member that doesn't come back.
func (n *Instance) leaveFailed(who string) func(error) {
	return func(err error) { n.log.Warn("stopped without leaving the group", "of", who, "error", err) }
}

// groupGoesOn tells of a membership that ended, or of brokers that are away: the client joins again.
func (n *Instance) groupGoesOn(who string) func(error) {
	return func(err error) {
		n.log.Log(context.Background(), levelOf(err, slog.LevelInfo), "group session goes on after an error", "of", who, "error", err)
	}
}

// levelOf is the level of a line about an error that is tried again: one that operators have to act on is an error.
func levelOf(err error, usual slog.Level) slog.Level {
	if kafka.IsRefused(err) {
		return slog.LevelError
	}
	return usual
}

func (n *Instance) partitionStandsStill(topic string, p int32, err error) {
	if _, says := errors.AsType[*kafka.DamagedError](err); !says {
		err = fmt.Errorf("topic %s partition %d: %w", topic, p, err)
	}
	n.standsStill(err)
}

func (n *Instance) supervisorListener() *supervisor.Listener {
	m, owned := n.metrics, n.metrics.partitions.WithLabelValues("supervisor")
	zero(m.asked, events.ActionRetry, events.ActionWait, events.ActionUndo, events.ActionHold)
	zero(m.poison, "supervisor")
	zero(m.dropped, "supervisor")
	return &supervisor.Listener{
		Assigned: func(int32) { owned.Inc() },
		Lost: func(p int32) {
			owned.Dec()
			m.armed.DeleteLabelValues(strconv.Itoa(int(p))) // its next owner counts them
		},
		Restored: func(p int32, _ time.Duration) { m.health.restored("supervisor", p) },
		Snapshot: func(p int32, timers int) {
			n.log.Info("deadlines taken from the scheduler's snapshot", "partition", p, "armed", timers)
		},
		SnapshotRefused: func(p int32, why error) {
			n.log.Warn("snapshot not used; the log is read instead", "role", "supervisor", "partition", p, "error", why)
		},
		Asked: func(a events.Action) { m.asked.WithLabelValues(string(a)).Inc() },
		Late:  func(d time.Duration) { m.lateness.Observe(d.Seconds()) },
		Armed: func(p int32, timers int) { m.armed.WithLabelValues(strconv.Itoa(int(p))).Set(float64(timers)) },
		SendFailed: func(p int32, err error) {
			n.log.Log(context.Background(), levelOf(err, slog.LevelWarn), "recoveries not written; asked for again", "partition", p, "error", err)
		},
		CommitFailed: func(err error) {
			n.log.Log(context.Background(), levelOf(err, slog.LevelWarn), "positions not committed", "role", "supervisor", "error", err)
		},
		Poison: func(p int32, err error) {
			m.poison.WithLabelValues("supervisor").Inc()
			n.log.Error("event can't be used; its task is stopped here", "partition", p, "error", err)
		},
		Skew: func(skew time.Duration) { n.log.Warn("clock", "skew", skew) },
	}
}

func (n *Instance) sessionListener(who string) kafka.SessionListener {
	return kafka.SessionListener{
		Joined:         func() { n.metrics.health.assigned(who, nil, nil) },
		TransientError: n.groupGoesOn(who),
	}
}

func (n *Instance) agentListener(name string) agent.Listener {
	zero(n.metrics.requests.MustCurryWith(prometheus.Labels{"agent": name}), "completed", "failed", "rejected", "late", "dropped", "retried", "abandoned",
		"panicked", "send_failed", "malformed")
	count := func(result string) { n.metrics.requests.WithLabelValues(name, result).Inc() }
	log := n.log.With("agent", name)
	return agent.Listener{
		Left: func(reason error) {
			n.metrics.health.left("agent." + name)
			log.Info("left the group", "reason", reason)
		},
		Unhealthy: func(err error, failures int) { log.Warn("unhealthy", "failures", failures, "error", err) },
		Finished:  func(_ agent.Request, o events.Outcome, _ time.Duration) { count(string(o)) },
		Late:      func(agent.Request, time.Duration) { count("late") },
		Dropped:   func(agent.Request) { count("dropped") },
		Retried:   func(agent.Request, error, int, time.Duration) { count("retried") },
		Abandoned: func(agent.Request) { count("abandoned") },
		Panicked: func(r agent.Request, value any, stack []byte) {
			count("panicked")
			log.Error("handler panicked", "request", r.ID, "value", value, "stack", string(stack))
		},
		SendFailed: func(r agent.Request, err error) {
			count("send_failed")
			level := levelOf(err, slog.LevelWarn)
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				level = slog.LevelDebug // its time was over: silence is the rule
			}
			log.Log(context.Background(), level, "reply not acknowledged", "request", r.ID, "error", err)
		},
		Malformed: func(rec events.Record, err error) {
			count("malformed")
			log.Warn("no request", "record", events.Origin(&rec), "error", err)
		},
		CircuitChanged: func(downstream, from, to string) {
			log.Warn("circuit", "downstream", downstream, "from", from, "to", to)
			n.metrics.circuits.WithLabelValues(name, downstream).Set(map[string]float64{agent.CircuitHalfOpen: 1, agent.CircuitOpen: 2}[to])
		},
	}
}
