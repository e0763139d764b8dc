package verify

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// topicRequests precedes an agent's name in the name of its request topic.
const topicRequests = "requests."

// request is a request whose attempt hasn't been fed yet.
type request struct {
	due       int64
	value     uint64 // a hash of it
	trace     uint64 // a hash of its traceparent
	token     uint64 // a hash of its token's hash
	heartbeat time.Duration
	progress  uint64 // a hash of the last progress in it
	key       string
	operation string
	topic     string
	partition int32
	offset    int64
	of        askedOf  // of a check
	next      *request // another request with this name
}

// askedOf is what the request of a check asks about.
type askedOf struct {
	key   string
	input uint64 // a hash of it
}

// askedOfValue reads the value of a check's request. The zero value: it names no key.
func askedOfValue(value []byte) askedOf {
	var v struct {
		Of struct {
			Key   string          `json:"idempotency_key"`
			Input json.RawMessage `json:"input"`
		} `json:"check_of"`
	}
	if json.Unmarshal(value, &v) != nil {
		return askedOf{}
	}
	return askedOf{v.Of.Key, sumOf(v.Of.Input)}
}

// Request adds a record of an agent's request topic. A request and the event of its attempt are written in one
// transaction, so both must exist (P10).
func (c *Checker) Request(r *events.Record) {
	c.asked++
	topic := strings.TrimPrefix(r.Topic, string(c.o.Namespace))
	q, err := events.DecodeRequest(r)
	if err != nil {
		c.faults.add(Fault{"P15", "", topic, r.Partition, r.Offset, err.Error()})
		return
	}
	id := events.RequestID(q.Task, q.Ref)
	if string(r.Key) != q.Task {
		c.faults.add(Fault{"P10", q.Task, topic, r.Partition, r.Offset, fmt.Sprintf("the request %s has the key %q", id, r.Key)})
		return
	}
	x := &request{millis(q.CompleteBy), sumOf(q.Value), sumOfText(q.Traceparent), sumOfText(events.TokenHash(q.Task, q.Ref, q.Token)), q.Heartbeat, sumOf(q.Progress), q.IdempotencyKey, q.Operation, topic, r.Partition, r.Offset, askedOf{}, nil}
	if q.Ref.Kind == events.Check {
		x.of = askedOfValue(q.Value)
	}
	if t := c.tasks[q.Task]; t != nil {
		t = t.lifeWith(q.Ref, x.token)
		if i, ok := t.findAttempt(q.Ref); ok && (t.attempts[i].token == x.token || !t.forgets()) {
			c.checkRequest(t, i, id, x)
			return
		}
	}
	for other := c.requests[id]; other != nil; other = other.next {
		if other.token == x.token {
			c.faults.add(Fault{"P10", q.Task, topic, r.Partition, r.Offset, "the request " + id + " was written twice"})
			return
		}
	}
	x.next = c.requests[id] // of another task with this id, whose events come later
	c.requests[id] = x
}

// given holds hashes of the task's data that its requests must contain.
type given struct {
	trace  uint64   // a hash of its traceparent
	input  uint64   // a hash of the task's input
	inputs []uint64 // hashes of the steps' inputs; 0: none yet
}

// recordReceived prepares the checks of a task's requests.
func (c *Checker) recordReceived(t *task, f *events.TaskReceived) {
	if c.o.Requests {
		c.given[t] = &given{sumOfText(f.Traceparent), sumOf(f.Input), make([]uint64, len(f.Plan.Steps))}
	}
}

// recordStarted records an attempt. If its request was fed already, it compares them.
func (c *Checker) recordStarted(t *task, step int, f *events.AttemptStarted) {
	if g := c.given[t]; g != nil && f.Kind == events.Do {
		switch {
		case f.TaskInput:
			g.inputs[step] = g.input
		case len(f.Input) > 0:
			g.inputs[step] = sumOf(f.Input)
		}
	}
	if len(c.requests) == 0 {
		return
	}
	id := events.RequestID(t.id, events.RequestRef{Step: f.Step, Kind: f.Kind, Attempt: f.Attempt})
	if x := c.removeRequest(t, id, sumOfText(f.TokenHash)); x != nil {
		c.checkRequest(t, len(t.attempts)-1, id, x)
	}
}

// removeRequest removes the request of an attempt from those that were fed before their attempts; nil: there is none. If the
// id of the task may be forgotten, a request with another token is of another task.
func (c *Checker) removeRequest(t *task, id string, token uint64) *request {
	var before *request
	for x := c.requests[id]; x != nil; before, x = x, x.next {
		if x.token != token && t.forgets() {
			continue
		}
		switch {
		case before != nil:
			before.next = x.next
		case x.next != nil:
			c.requests[id] = x.next
		default:
			delete(c.requests, id)
		}
		return x
	}
	return nil
}

// forgets reports whether the id of the task, or of an earlier one, may be forgotten.
func (t *task) forgets() bool { return t.earlier != nil || t.plan != nil && t.plan.DedupeFor > 0 }

// checkRequest compares a request with its attempt.
func (c *Checker) checkRequest(t *task, i int, id string, x *request) {
	a, what := &t.attempts[i], ""
	kind := kindsOfRun[a.run()]
	plan, step := c.planOfAttempt(t, a)
	agent, operation, heartbeat := "", x.operation, x.heartbeat
	if plan == nil {
		agent = strings.TrimPrefix(x.topic, topicRequests)
	} else {
		agent, operation = plan.Agent(step, kind)
		heartbeat = plan.AttemptsOf(step, kind).Heartbeat
	}
	g := c.given[t]
	switch {
	case a.asked:
		what = "the request " + id + " was written twice"
	case a.token != x.token:
		what = "the request " + id + " has another token than its attempt: its reply will be refused"
	case heartbeat != x.heartbeat:
		what = fmt.Sprintf("the request %s has a heartbeat of %s, its attempt one of %s", id, x.heartbeat, heartbeat)
	case a.due != x.due:
		what = fmt.Sprintf("the request %s is to be complete by %s, its attempt by %s", id, instant(x.due), instant(a.due))
	case x.operation != operation || x.topic != topicRequests+agent:
		what = fmt.Sprintf("the request %s is for %s, on %s; its attempt for %s of agent %q", id, x.operation, x.topic, operation, agent)
	case a.generation < manyGenerations && !endsWith(x.key, c.ownKey(t, int(a.step), kind, uint16(a.generation))):
		what = fmt.Sprintf("the request %s has the key %s, its attempt one that ends with %s", id, x.key, c.text)
	case g != nil && g.trace != x.trace:
		what = fmt.Sprintf("the request %s has another traceparent than its task", id)
	case g != nil && kind == events.Do && g.inputs[a.step] != x.value:
		what = fmt.Sprintf("the request %s has another value than the input of step %q", id, t.plan.Steps[a.step].ID)
	case kind == events.Check && !c.asksAboutLast(t, i, x.of):
		what = fmt.Sprintf("the request %s asks about the key %s; the attempt before has another key, or another input", id, x.of.key)
	case t.open != nil && t.open.runs != nil:
		if run := t.open.run(int(a.step), kind); run.attempt == int(a.number) && run.key != x.key {
			what = fmt.Sprintf("the request %s has the key %s, its attempt %s", id, x.key, run.key)
		} else if run.attempt == int(a.number) && run.given != x.progress {
			what = fmt.Sprintf("the request %s hasn't the last progress of step %q", id, t.plan.Steps[a.step].ID)
		}
	}
	a.asked = true
	if what != "" {
		c.faults.add(Fault{"P10", t.id, x.topic, x.partition, x.offset, what})
	}
}

// asksAboutLast reports whether a check asks about the key and the input of its step's last attempt before it.
func (c *Checker) asksAboutLast(t *task, i int, of askedOf) bool {
	step := t.attempts[i].step
	for j := i - 1; j >= 0; j-- {
		if a := &t.attempts[j]; a.step == step && kindsOfRun[a.run()] == events.Do {
			g := c.given[t]
			return (g == nil || g.inputs[step] == of.input) &&
				(a.generation >= manyGenerations || endsWith(of.key, c.ownKey(t, int(step), events.Do, uint16(a.generation))))
		}
	}
	return true // a check without an attempt is another fault
}

func instant(ms int64) string { return time.UnixMilli(ms).UTC().Format(events.TimeLayout) }
