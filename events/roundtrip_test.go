package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-run/waybill/internal/suite"
)

// fill sets every field of a value at random, to values that its codec can encode: instants and durations of whole
// milliseconds, JSON without white space around it, texts in UTF-8.
func fill(t *rapid.T, v reflect.Value, name string) {
	switch p := v.Addr().Interface().(type) {
	case *Run:
		var x Interim
		fill(t, reflect.ValueOf(&x).Elem(), name+" interim")
		p.setInterim(x)
	case *Step:
		var x KindState
		fill(t, reflect.ValueOf(&x).Elem(), name+" kind")
		p.setKindState(x)
	case *time.Time:
		if rapid.Bool().Draw(t, name+" set") {
			*p = time.UnixMilli(rapid.Int64Range(0, 253402300799999).Draw(t, name)).UTC()
		}
		return
	case *time.Duration:
		*p = time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, name)) * time.Millisecond
		return
	case *json.RawMessage:
		if raw := bytes.TrimSpace([]byte(rapid.SampledFrom(rawValues).Draw(t, name))); len(raw) > 0 {
			*p = raw
		}
		return
	case **Plan:
		*p = drawPlan(t)
		return
	case **Items:
		if *p = nil; rapid.Bool().Draw(t, name+" set") {
			*p = drawItems(t)
		}
		return
	case *Kind:
		if *p == "" { // otherwise the type of the fact has set it
			*p = rapid.SampledFrom([]Kind{Do, Undo}).Draw(t, name)
		}
		return
	case *Cause:
		*p = Cause{Inbox(rapid.IntRange(0, int(Inboxes)-1).Draw(t, name)), rapid.Int32Min(0).Draw(t, name), rapid.Int64Min(0).Draw(t, name)}
		return
	case *map[string]string:
		if m := rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, name); len(m) > 0 {
			*p = m
		}
		return
	}
	fillKind(t, v, name)
}

func fillKind(t *rapid.T, v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.ToValidUTF8(rapid.String().Draw(t, name), ""))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, name))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, name))
	case reflect.Int32:
		v.SetInt(int64(rapid.Int32().Draw(t, name)))
	case reflect.Uint64:
		v.SetUint(uint64(rapid.Int64Min(0).Draw(t, name)))
	case reflect.Float64:
		v.SetFloat(rapid.Float64().Draw(t, name))
	case reflect.Pointer:
		if rapid.Bool().Draw(t, name+" set") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem(), name)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, v.Field(i), name+"."+v.Type().Field(i).Name)
			}
		}
	case reflect.Slice:
		for range rapid.IntRange(0, 3).Draw(t, name+" length") {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			fill(t, v.Index(v.Len()-1), name)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), name)
		}
	default:
		panic(fmt.Sprintf("%s: no rule to fill a %s", name, v.Type()))
	}
}

// TestFactsRoundTrip checks that every fact, with random fields, is decoded as it was encoded, and encoded again to the
// same bytes.
func TestFactsRoundTrip(t *testing.T) {
	for _, typ := range Types() {
		t.Run(typ, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				e := &Event{Fact: facts[typ].newFact()}
				fill(t, reflect.ValueOf(e.Fact).Elem(), "fact")
				fill(t, reflect.ValueOf(&e.At).Elem(), "at")
				fill(t, reflect.ValueOf(&e.Due).Elem(), "due")
				fill(t, reflect.ValueOf(&e.Cause).Elem(), "cause")
				e.Task, e.Prev = rapid.StringN(1, 30, 200).Draw(t, "task"), rapid.String().Draw(t, "prev")
				e.Seq, e.Epoch = uint64(rapid.Int64Min(1).Draw(t, "seq")), uint64(rapid.Int64Min(0).Draw(t, "epoch"))
				if OfPartition(e.Fact) {
					e.Task = ""
				}
				if !e.Due.IsZero() {
					e.Policy = &Policy{}
					fill(t, reflect.ValueOf(e.Policy).Elem(), "policy")
				}
				r := e.Record("ns.", "s", 3, e.Value())
				if !json.Valid(r.Value) {
					t.Fatalf("written as no JSON: %s", r.Value)
				}
				borrowed := r
				borrowed.Value = bytes.Clone(r.Value)
				got, err := DecodeEvent(&borrowed)
				clear(borrowed.Value)
				if err != nil {
					t.Fatalf("%v\n%s", err, r.Value)
				}
				if !reflect.DeepEqual(got, e) {
					t.Fatalf("written %+v %+v\nread    %+v %+v\nfrom %s", e, e.Fact, got, got.Fact, r.Value)
				}
				if again := got.Value(); !bytes.Equal(again, r.Value) {
					t.Fatalf("written %s\nagain   %s", r.Value, again)
				}
				line, err := TimelineLine(&r)
				if err != nil || line.Seq != e.Seq || line.Type != typ {
					t.Fatalf("timeline: %+v, %v", line, err)
				}
			})
		})
	}
}

// TestStoredRoundTrip checks that a task, a partition's state and a supervisor's timers are read as they were stored.
func TestStoredRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := drawPlan(t)
		task := &Task{}
		fill(t, reflect.ValueOf(task).Elem(), "task")
		task.Plan, task.Steps = plan, newSteps(len(plan.Steps))
		for i := range task.Steps {
			fill(t, reflect.ValueOf(task.Steps[i]).Elem(), "step")
		}
		for _, s := range task.Steps {
			s.Run.shareInput(task)
			if s.Undo != nil {
				s.Undo.shareInput(task)
			}
			if s.Check != nil {
				s.Check.shareInput(task)
			}
			if s.Items != nil {
				s.Items.deriveOrder(s.Undo != nil)
			}
		}
		borrowed := task.Encode()
		got, err := DecodeTask(borrowed)
		clear(borrowed) // as a store does with its memory
		if err != nil || !reflect.DeepEqual(got, task) {
			t.Fatalf("%v\nstored %+v\nread   %+v\nfrom %s", err, task, got, task.Encode())
		}
		p := &PartitionState{}
		fill(t, reflect.ValueOf(p).Elem(), "partition")
		if got, err := DecodePartitionState(p.Encode()); err != nil || *got != *p {
			t.Fatalf("%v\nstored %+v\nread   %+v", err, p, got)
		}
		tm := &Timers{}
		fill(t, reflect.ValueOf(tm).Elem(), "timers")
		if got, err := DecodeTimers(tm.Encode()); err != nil || !reflect.DeepEqual(got, tm) {
			t.Fatalf("%v\nstored %+v\nread   %+v", err, tm, got)
		}
	})
}

// TestHistoriesMatchSchemas checks that the events of random histories are valid by the published schemas.
func TestHistoriesMatchSchemas(t *testing.T) {
	schemas := map[string]map[string]any{}
	for _, typ := range Types() {
		schemas[typ] = readSchema(t, typ)
	}
	rapid.Check(t, suite.Some(t, func(t *rapid.T) {
		w := &walker{T: t, at: epochStart, states: map[TaskState]int{}}
		w.written = func(e *Event, value []byte) {
			v := parseJSON(t, value)
			if e.Seq > 1 {
				v.(map[string]any)["prev"] = "mZ0xv8tJ3kq2c1b4a5s6dw" // accepted uses a shorter one
			}
			if faults := check(schemas[e.Fact.Type()], v, "$"); len(faults) > 0 {
				t.Fatalf("%s: %s\n%s", e.Fact.Type(), strings.Join(faults, "; "), value)
			}
		}
		w.walk(20)
	}))
}

// TestPartitionEvolve checks that epochs never decrease, that claims are consecutive, and that inputs up to a cause are
// reflected.
func TestPartitionEvolve(t *testing.T) {
	p := &PartitionState{}
	ok := func(epoch uint64, sec int, c Cause, f Fact) {
		t.Helper()
		if err := p.Evolve(&Event{Epoch: epoch, At: instantOf(sec), Cause: c, Fact: f}); err != nil {
			t.Fatal(err)
		}
	}
	ok(1, 1, Cause{Tasks, 0, 5}, &PartitionClaimed{Owner: "a"})
	ok(1, 1, Cause{Tasks, 0, 5}, &TaskStarted{})
	ok(1, 2, Cause{Replies, 0, 0}, &TaskStarted{})
	ok(1, 2, Cause{Tasks, 0, 3}, &TaskStarted{}) // an older cause changes no offset
	ok(2, 3, Cause{Tasks, 0, 9}, &PartitionClaimed{Owner: "b"})
	want := PartitionState{Epoch: 2, Owner: "b", At: instantOf(3)}
	want.Reflected[Tasks], want.Reflected[Replies] = 10, 1
	if *p != want {
		t.Errorf("%+v, want %+v", *p, want)
	}
	for name, e := range map[string]*Event{
		"an epoch that falls":      {Epoch: 1, At: instantOf(4), Fact: &TaskStarted{}},
		"a claim that leaves out":  {Epoch: 4, At: instantOf(4), Fact: &PartitionClaimed{}},
		"a claim of the same":      {Epoch: 2, At: instantOf(4), Fact: &PartitionClaimed{}},
		"an epoch nobody claimed":  {Epoch: 3, At: instantOf(4), Fact: &TaskStarted{}},
		"an instant that falls":    {Epoch: 2, At: instantOf(2), Fact: &TaskStarted{}},
		"a first event before all": {Epoch: 0, At: instantOf(4), Fact: &TaskStarted{}},
	} {
		if err := p.Evolve(e); err == nil || *p != want {
			t.Errorf("%s: %v; state %+v", name, err, *p)
		}
	}
}

// TestClaimOfARecreatedInboxBeginsAtItsStart checks that a claim with another topic id resets the reflected offset,
// since the offsets of a recreated topic begin at 0.
func TestClaimOfARecreatedInboxBeginsAtItsStart(t *testing.T) {
	p := &PartitionState{}
	fold := func(epoch uint64, c Cause, f Fact) {
		t.Helper()
		if err := p.Evolve(&Event{Epoch: epoch, At: instantOf(1), Cause: c, Fact: f}); err != nil {
			t.Fatal(err)
		}
	}
	fold(1, Cause{Tasks, 0, 5}, &PartitionClaimed{Owner: "a"}) // an owner without topic ids
	fold(1, Cause{Replies, 0, 7}, &TaskStarted{})
	fold(2, Cause{Tasks, 0, 6}, &PartitionClaimed{Owner: "a", TopicIDs: TopicIDs{Tasks: "t1", Replies: "r1"}})
	if want := [...]int64{Tasks: 7, Replies: 8}; p.Reflected[Tasks] != want[Tasks] || p.Reflected[Replies] != want[Replies] {
		t.Errorf("ids that weren't known before: reflected %v", p.Reflected)
	}
	if n := p.ReflectedIn(Tasks, "t2"); n != 0 {
		t.Errorf("%d of another topic are reflected", n)
	}
	if n, m := p.ReflectedIn(Tasks, "t1"), p.ReflectedIn(Tasks, ""); n != 7 || m != 7 {
		t.Errorf("%d and %d of the same topic are reflected, want 7", n, m)
	}
	fold(3, Cause{Tasks, 0, 1}, &PartitionClaimed{Owner: "b", TopicIDs: TopicIDs{Tasks: "t2", Replies: "r1"}})
	if p.Reflected[Tasks] != 2 || p.Reflected[Replies] != 8 || p.TopicIDs != (TopicIDs{Tasks: "t2", Replies: "r1"}) {
		t.Errorf("after the claim of a recreated inbox: reflected %v of %v", p.Reflected, p.TopicIDs)
	}
	fold(4, Cause{Replies, 0, 8}, &PartitionClaimed{Owner: "b"})
	if p.Reflected[Tasks] != 2 || p.TopicIDs[Tasks] != "t2" {
		t.Errorf("a claim without ids: reflected %v of %v", p.Reflected, p.TopicIDs)
	}
}

// TestDecodedRequestKeepsNothingOfItsRecord checks that the texts of a request don't alias its record, since handlers
// retain them and readers reuse memory.
func TestDecodedRequestKeepsNothingOfItsRecord(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := Request{Task: "o-1", Ref: RequestRef{Step: "charge", Kind: Do, Attempt: 2}, Token: "secret", Operation: "charge", CompleteBy: at, IdempotencyKey: "k-1", Traceparent: "00-1-2-01"}
	r := want.Record("waybill.", "test", "payment", 0)
	for i := range r.Headers {
		r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
	}
	got, err := DecodeRequest(&r)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range r.Headers {
		for i := range h.Value {
			h.Value[i] = 'x'
		}
	}
	if got.Value = nil; !reflect.DeepEqual(*got, want) {
		t.Errorf("read as %+v; want %+v", *got, want)
	}
}
