package intakerun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
)

const (
	// transactionRecordsMax bounds the records of a transaction. A larger one gains nothing, and one that is rolled back
	// costs more.
	transactionRecordsMax = 10_000
	restartWaitMin        = 200 * time.Millisecond
	restartWaitMax        = 10 * time.Second
	// warnInterval is the least time between two log lines about a failure that lasts.
	warnInterval = time.Minute
)

// The codes of alerts.
const (
	AlertRecreated  = "intake_topic_recreated"
	AlertLost       = "intake_records_lost"
	AlertTruncated  = "intake_topic_truncated"
	AlertUnreadable = "intake_records_unreadable"
	AlertStopped    = "intake_stopped"
	AlertWaits      = "intake_waits"
)

// Client is the Kafka client of a worker: a schedulerworker.Worker.
type Client interface {
	Poll(ctx context.Context) ([]events.Record, error)
	Commit(ctx context.Context, out []events.Record) (committed bool, err error)
	Abort(ctx context.Context) error
	Assigned() map[int32]uint64
	Pause(p int32, topic string, why inboxgate.Reason, until time.Time)
	Resume(p int32, why inboxgate.Reason, topics ...string)
	PlaceStart(ctx context.Context, p int32, start schedulerworker.Start) (placed bool, err error)
	TopicID(topic string) string
	Wake()
	Close()
}

// restarting runs a worker, and again when it fails.
func (c *consumer) restarting(ctx context.Context, number int) {
	var warned time.Time
	failures := 0
	name := c.program.Definition.Name
	for {
		start := time.Now()
		err := c.run(ctx, number)
		if ctx.Err() != nil {
			return
		}
		if failures++; time.Since(start) > restartWaitMax {
			failures = 1
		}
		c.s.cfg.Listener.Failed(name, err)
		if time.Since(warned) > warnInterval {
			warned = time.Now()
			c.s.cfg.Log.Warn("intake failed in this process; it is retried", "intake", name, "worker", number, "error", err)
		}
		if failures == alertAfter {
			c.s.cfg.Listener.Alert(name, AlertStopped, fmt.Sprintf("the intake %s doesn't run in a process: %v", name, err))
		}
		if backoff.Sleep(ctx, backoff.After(restartWaitMin, restartWaitMax, failures)) != nil {
			return
		}
	}
}

// alertAfter is how many failures in a row are worth an alert.
const alertAfter = 5

func (c *consumer) run(ctx context.Context, number int) error {
	client, err := c.open(ctx, number)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.opened[number] = client
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.opened, number)
		c.mu.Unlock()
		client.Close()
	}()
	start, err := c.startOf(client.TopicID(c.program.Definition.Topic))
	if err != nil {
		return err
	}
	w := &worker{c: c, client: client, start: start, topic: c.program.Definition.Topic, ready: map[int32]uint64{}, refused: map[place]*events.Unusable{}}
	return w.run(ctx)
}

// startOf returns where the topic with an id begins for the intake. A topic that was recreated while this process ran is
// read from its start: all of its records are newer than the intake. The brokers have forgotten the positions of the
// earlier topic.
func (c *consumer) startOf(id string) (schedulerworker.Start, error) {
	d := c.program.Definition
	c.mu.Lock()
	before := c.topicID
	recreated := before != "" && before != id
	if c.recreated = c.recreated || recreated; c.recreated {
		d = &intake.Definition{Start: intake.StartEarliest}
	}
	c.topicID = id
	c.mu.Unlock()
	if recreated {
		name := c.program.Definition.Name
		c.s.cfg.Listener.Alert(name, AlertRecreated, fmt.Sprintf("the topic %s was recreated: it is read from its start", c.program.Definition.Topic))
	}
	at, err := d.StartAt()
	return schedulerworker.Start{Latest: d.Start == intake.StartLatest, At: at}, err
}

// open joins the group of the intake.
func (c *consumer) open(ctx context.Context, number int) (Client, error) {
	cfg, d := &c.s.cfg, c.program.Definition
	partitions, exists, err := cfg.Admin.TopicPartitions(ctx, d.Topic)
	switch {
	case err != nil:
		return nil, err
	case !exists:
		return nil, fmt.Errorf("the topic %s doesn't exist, or this principal may not see it", d.Topic)
	}
	owner := fmt.Sprintf("%s.%s.%d", d.Name, cfg.Owner, number)
	worker := schedulerworker.Config{
		Config: cfg.Kafka, Group: intake.Group(cfg.Kafka.Namespace, d.Name), Owner: owner, Role: "intake", AcceptsResets: true,
		Topics: []string{d.Topic}, Partitions: partitions, MaxPollRecords: transactionRecordsMax,
		SessionTimeout: cfg.Session, TransactionTimeout: cfg.Transaction, FetchMaxWait: cfg.FetchMaxWait, Listener: c.listener(),
	}
	if cfg.InstanceID != nil {
		if worker.InstanceID = cfg.InstanceID(d.Name, number); worker.InstanceID != "" {
			worker.LeaveOnClose = cfg.LeaveOnClose
		}
	}
	l, err := schedulerworker.Open(ctx, worker)
	if err != nil {
		return nil, err // not a nil *Worker in an interface
	}
	if cfg.Wrap != nil {
		return cfg.Wrap(l), nil
	}
	return l, nil
}

func (c *consumer) listener() *schedulerworker.Listener {
	name, log, alert := c.program.Definition.Name, c.s.cfg.Log.With("intake", c.program.Definition.Name), c.s.cfg.Listener.Alert
	unreadable := map[int32]string{} // what was said of each partition: a read is retried for as long as it fails
	return &schedulerworker.Listener{
		GroupFailed: func(err error) {
			log.Warn("membership in the intake's group ended; the process joins again", "error", err)
		},
		SubscriptionMismatch: func(member string, topics []string) {
			log.Warn("another process of the intake reads other topics; it has an earlier definition", "member", member, "topics", topics)
		},
		DataLost: func(err error) {
			alert(name, AlertTruncated, err.Error())
			log.Error("the topic was truncated", "error", err)
		},
		Corrupt: func(topic string, p int32, err error) {
			if told := err.Error(); unreadable[p] != told {
				unreadable[p] = told
				alert(name, AlertUnreadable, fmt.Sprintf("partition %d of %s can't be read, and its records wait: %s", p, topic, told))
			}
			log.Error("records can't be read; the partition is paused, and the read is retried", "topic", topic, "partition", p, "error", err)
		},
		Position: func(at groupmember.Position, fault groupmember.PositionFault) {
			log.Error("the position of the intake can't be used as it is", "position", at.String(), "fault", fault)
			switch fault {
			case groupmember.PositionForeign, groupmember.PositionRolledBack:
				alert(name, AlertRecreated, fmt.Sprintf("the topic %s was recreated: partition %d is read from its start", at.Topic, at.Partition))
			case groupmember.PositionTrimmed:
				alert(name, AlertLost, fmt.Sprintf("records of %s/%d were deleted before the intake read them: %d", at.Topic, at.Partition, at.Start-at.Offset))
			case groupmember.PositionCut:
				alert(name, AlertTruncated, fmt.Sprintf("the log of %s/%d ends at %d, below the position %d: it isn't read; set the group's offset", at.Topic, at.Partition, at.End, at.Offset))
			}
		},
	}
}

// place is the place of a record in the intake's topic.
type place struct {
	partition int32
	offset    int64
}

// worker is one goroutine. It owns all fields.
type worker struct {
	c      *consumer
	client Client
	topic  string
	start  schedulerworker.Start
	paused bool
	ready  map[int32]uint64 // the assignments that have a position
	// refused are records that the cluster refused in the form that they were mapped to, until they are committed as dead
	// letters.
	refused map[place]*events.Unusable
	out     []events.Record
	// unavailable is how often in a row the schema registry couldn't be asked.
	unavailable int
}

func (w *worker) run(ctx context.Context) error {
	for {
		if err := w.runOnce(ctx); err != nil {
			return err
		}
	}
}

// runOnce is one round: poll, map, commit.
func (w *worker) runOnce(ctx context.Context) error {
	if err := w.reconcile(ctx); err != nil {
		return err
	}
	w.updatePause()
	records, err := w.client.Poll(ctx)
	if err != nil || len(records) == 0 {
		return err
	}
	var n Counts
	if w.out, n, err = w.mapAll(ctx, records); err != nil {
		return w.awaitSchemas(ctx, err)
	}
	w.unavailable = 0
	committed, err := w.client.Commit(ctx, w.out)
	var refused *schedulerworker.ProduceError
	switch {
	case errors.As(err, &refused) && refused.Permanent() && refused.Topic != w.c.s.cfg.Kafka.Namespace.Deadletters() && kafka.IsTooLarge(refused):
		w.refuse(&w.out[refused.Index], refused)
		return nil // its records are polled again
	case err != nil:
		return err
	case committed:
		clear(w.refused)
		w.c.s.cfg.Listener.Committed(w.c.program.Definition.Name, n)
	}
	return nil
}

// awaitSchemas gives the records back, and waits before they are polled again.
func (w *worker) awaitSchemas(ctx context.Context, why error) error {
	if err := w.client.Abort(ctx); err != nil {
		return err
	}
	if w.unavailable++; w.unavailable == 1 || w.unavailable%alertAfter == 0 {
		w.c.s.cfg.Log.Warn("the schema registry is unavailable; the intake waits", "intake", w.c.program.Definition.Name, "error", why)
	}
	if w.unavailable == alertAfter {
		name := w.c.program.Definition.Name
		w.c.s.cfg.Listener.Alert(name, AlertWaits, fmt.Sprintf("the intake %s waits for its schema registry: %v", name, why))
	}
	w.c.s.cfg.Listener.Failed(w.c.program.Definition.Name, why)
	return backoff.Sleep(ctx, backoff.After(restartWaitMin, restartWaitMax, w.unavailable))
}

// reconcile gives newly assigned partitions their positions.
func (w *worker) reconcile(ctx context.Context) error {
	owned := w.client.Assigned()
	for p := range w.ready {
		if _, still := owned[p]; !still {
			delete(w.ready, p)
		}
	}
	for p, number := range owned {
		if w.ready[p] == number {
			continue
		}
		placed, err := w.client.PlaceStart(ctx, p, w.start)
		if err != nil {
			return err
		}
		if placed {
			w.c.s.cfg.Log.Info("intake starts to read a partition", "intake", w.c.program.Definition.Name, "topic", w.topic, "partition", p, "start", w.c.program.Definition.Start)
		}
		w.client.Resume(p, inboxgate.PausedForRestore)
		w.ready[p] = number
	}
	return nil
}

func (w *worker) updatePause() {
	paused := w.c.paused.Load()
	if paused == w.paused {
		return
	}
	if w.paused = paused; paused {
		w.client.Pause(inboxgate.AllPartitions, w.topic, inboxgate.PausedForAdmission, time.Time{})
	} else {
		w.client.Resume(inboxgate.AllPartitions, inboxgate.PausedForAdmission, w.topic)
	}
}

// mapAll maps records. It fails if the schema registry can't be asked.
func (w *worker) mapAll(ctx context.Context, records []events.Record) (out []events.Record, n Counts, err error) {
	out = w.out[:0]
	id, program := w.client.TopicID(w.topic), w.c.program
	for i := range records {
		r := &records[i]
		if why := w.refused[place{r.Partition, r.Offset}]; why != nil {
			out = append(out, program.Deadletter(r, id, why))
			n.dead(why.Reason)
			continue
		}
		var avro json.RawMessage
		var undecoded *events.Unusable
		if program.Definition.Format == intake.Avro && r.Value != nil {
			if avro, undecoded, err = w.c.s.cfg.Schemas.Decode(ctx, r.Value); err != nil {
				return out, n, err
			}
		}
		got := program.Map(r, id, avro, undecoded)
		switch {
		case got.Skipped():
			n.Skipped++
			continue
		case got.Reason != "":
			n.dead(got.Reason)
		case program.Definition.Submit != nil:
			n.Submissions++
		default:
			n.Signals++
		}
		out = append(out, got.Record)
	}
	return out, n, nil
}

func (n *Counts) dead(reason events.Reason) {
	if n.Deadletters == nil {
		n.Deadletters = map[events.Reason]int{}
	}
	n.Deadletters[reason]++
}

// refuse notes that a record is to become a dead letter.
func (w *worker) refuse(out *events.Record, why error) {
	if ref := events.IntakeOf(out); ref != nil {
		w.refused[place{ref.Partition, ref.Offset}] = &events.Unusable{Reason: events.ReasonTooLarge, Detail: why.Error()}
	}
}
