package chaos

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/verify"
)

// replyTolerance is how long after complete-by the broker may append the reply of an undisturbed agent. The clocks of
// roles are estimates, and the machine is shared. The replies of a zombie are late by seconds, because it was stopped
// for longer than an attempt lasts.
const replyTolerance = time.Second

// violations collects broken guarantees.
type violations []string

func (v *violations) add(format string, args ...any) {
	*v = append(*v, fmt.Sprintf(format, args...))
}

// check checks all topics when all tasks have ended.
func (z *zombie) check() []string {
	raw := z.broker.ReadTopic(z.t, z.cfg.Namespace.Events()) // read by another client library
	z.seen.mu.Lock()
	defer z.seen.mu.Unlock()
	var v violations
	z.checkSame(&v, raw)
	z.checkPromises(&v, raw)
	z.checkEpochs(&v)
	z.checkInputs(&v)
	z.checkReplies(&v)
	z.checkRecoveries(&v)
	return v
}

// checkSame: two client libraries read the same log.
func (z *zombie) checkSame(v *violations, raw []events.Record) {
	at := map[int32]int{}
	for i := range raw {
		p := raw[i].Partition
		n := at[p]
		if at[p]++; n >= len(z.seen.facts[p]) {
			continue // written after the watch ended
		}
		if mine := z.seen.facts[p][n].record; mine.Offset != raw[i].Offset || !bytes.Equal(mine.Value, raw[i].Value) {
			v.add("partition %d, event %d: kcat reads offset %d, the watch offset %d", p, n, raw[i].Offset, mine.Offset)
			return
		}
	}
	for p, facts := range z.seen.facts {
		if at[p] < len(facts) {
			v.add("partition %d: kcat reads %d events, the watch %d", p, at[p], len(facts))
		}
	}
}

// checkPromises checks everything that the log, its inputs, the requests and the ledger can prove. Every task must have
// the expected end.
func (z *zombie) checkPromises(v *violations, raw []events.Record) {
	c := verify.New(verify.Options{Namespace: z.cfg.Namespace, Partitions: systemPartitions, Inputs: true, Ledger: true, Requests: true,
		ReplyTolerance: replyTolerance, Exempt: func(r *events.Record) bool {
			return z.broker.Kind != kafkatest.KafkaKind || z.pulse.mayBeDelayed(r.Time, replyTolerance)
		}})
	for i := range z.seen.inputs {
		c.Input(&z.seen.inputs[i]) // records that aren't inputs are skipped
		if z.seen.inputs[i].Topic == z.cfg.Namespace.Requests(systemAgent) {
			c.Request(&z.seen.inputs[i])
		}
	}
	for i := range raw {
		c.Event(&raw[i])
	}
	ledger, err := z.service.ledger()
	if err != nil {
		v.add("read the ledger: %v", err)
	}
	for _, e := range effects(ledger) {
		c.Effect(e)
	}
	for id, at := range z.load.acked {
		c.Acknowledged(id, at)
	}
	report := c.Finish(time.Now())
	for _, f := range report.Faults {
		v.add("%s", f)
	}
	for id := range z.load.acked {
		if state := z.seen.ended[id]; state != events.StateProcessed {
			v.add("P1: task %s ended %q", id, state)
		}
	}
}

// checkEpochs: no event follows a claim of a later epoch, and each claim has the epoch after the last.
func (z *zombie) checkEpochs(v *violations) {
	for p, facts := range z.seen.facts {
		var epoch uint64
		var owner string
		for _, f := range facts {
			if claim, ok := f.Fact.(*events.PartitionClaimed); ok {
				if f.Epoch != epoch+1 {
					v.add("P11: partition %d, offset %d: %s claims epoch %d after %d", p, f.record.Offset, claim.Owner, f.Epoch, epoch)
				}
				epoch, owner = f.Epoch, claim.Owner
				continue
			}
			if source, _ := f.record.Header(events.HeaderSource); f.Epoch != epoch || !strings.HasSuffix(source, "scheduler/"+owner) {
				v.add("P11: partition %d, offset %d: an event of epoch %d by %s, while %s owns epoch %d", p, f.record.Offset, f.Epoch, source, owner, epoch)
			}
		}
	}
}

// checkInputs: no input leads to events twice. The events of one input are contiguous and by one owner. The inputs of
// an inbox are consumed in order.
func (z *zombie) checkInputs(v *violations) {
	type reader struct {
		inbox events.Inbox
		p     int32
	}
	for p, facts := range z.seen.facts {
		last := map[reader]fact{}
		for i, f := range facts {
			of := reader{f.Cause.Inbox, f.Cause.Partition}
			before, ok := last[of]
			if ok && (f.Cause.Offset < before.Cause.Offset || f.Cause == before.Cause && (f.Epoch != before.Epoch || facts[i-1].Cause != f.Cause)) {
				v.add("P10: partition %d, offset %d: %s was reflected before", p, f.record.Offset, f.Cause)
			}
			last[of] = f
		}
	}
}

// accepted returns the first event that each record of an inbox led to. Events of queued runs don't count. Such a run
// only starts at that record, because the record freed a slot.
func (z *zombie) accepted(inbox events.Inbox) map[events.Cause]fact {
	of := map[events.Cause]fact{}
	for _, facts := range z.seen.facts {
		for _, f := range facts {
			if _, claim := f.Fact.(*events.PartitionClaimed); claim || f.Cause.Inbox != inbox || f.Queued {
				continue
			}
			if _, ok := of[f.Cause]; !ok {
				of[f.Cause] = f
			}
		}
	}
	return of
}

// checkReplies: one reply is accepted for each attempt. None is accepted that the zombie was about to send when it
// stopped. If the broker sets the timestamps, none is accepted after complete-by.
func (z *zombie) checkReplies(v *violations) {
	accepted := z.accepted(events.Replies)
	by := map[string]string{}
	for p, replies := range z.seen.replies {
		for _, r := range replies {
			id := attemptOf(&r.Record)
			q, known := z.seen.requests[id]
			if !known {
				v.add("reply %d/%d answers %s, which nobody asked", p, r.Offset, id)
				continue
			}
			over := r.Time.Sub(q.CompleteBy)
			if z.broker.Kind == kafkatest.KafkaKind && over > 0 {
				what := fmt.Sprintf("P17: %s, asked %s before the zombie went on, was answered by %s %s after its complete-by", id, z.resumed.Sub(q.record.Time), r.source, over)
				if z.t.Log(what); over > replyTolerance && !z.pulse.mayBeDelayed(r.Time, replyTolerance) {
					v.add("%s", what)
				}
			}
			event, taken := accepted[events.Cause{Inbox: events.Replies, Partition: p, Offset: r.Offset}]
			inHand := z.kind == agentChild && z.wrote(zombieName, r.source) && r.Time.After(z.resumed) && q.record.Time.Before(z.stopped)
			if inHand {
				z.late++
			}
			switch {
			case !taken:
			case inHand:
				v.add("P3: %s, which the zombie had when it stopped, was accepted from it %s after it went on (event %d/%d)",
					id, r.Time.Sub(z.resumed), p, event.record.Offset)
			case by[id] != "":
				v.add("P3: %s was accepted twice, from %s and %s", id, by[id], r.source)
			}
			if taken {
				by[id] = r.source
			}
		}
	}
}

// timer identifies a timer by the task and the seq of the event that created it.
type timer struct {
	task string
	seq  uint64
}

// checkRecoveries: one recovery is accepted for each timer. None by the zombie is accepted for a timer that was due
// when it stopped.
func (z *zombie) checkRecoveries(v *violations) {
	due := map[timer]time.Time{}
	for _, facts := range z.seen.facts {
		for _, f := range facts {
			if !f.Due.IsZero() {
				due[timer{f.Task, f.Seq}] = f.Due
			}
		}
	}
	accepted := z.accepted(events.Recoveries)
	by := map[timer]string{}
	for p, recoveries := range z.seen.recoveries {
		for _, r := range recoveries {
			_, in, err := events.DecodeInput(events.Recoveries, &r.Record)
			recovery, ok := in.(*events.Recovery)
			if err != nil || !ok {
				v.add("recovery %d/%d can't be read: %v", p, r.Offset, err)
				continue
			}
			of := timer{recovery.Task, recovery.Timer}
			event, taken := accepted[events.Cause{Inbox: events.Recoveries, Partition: p, Offset: r.Offset}]
			inHand := z.kind == supervisorChild && z.wrote(zombieName, r.source) && r.arrived.After(z.resumed) && due[of].Before(z.stopped)
			if inHand {
				z.late++
			}
			switch {
			case !taken:
			case inHand:
				v.add("P4: the zombie's recovery for %v, due before it stopped, was accepted (event %d/%d)", of, p, event.record.Offset)
			case by[of] != "":
				v.add("P4: timer %v was recovered twice, by %s and %s", of, by[of], r.source)
			}
			if taken {
				by[of] = r.source
			}
		}
	}
}
