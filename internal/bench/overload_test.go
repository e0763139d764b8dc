package bench

import (
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestRunOverload offers an agent twice its capacity for longer than an attempt's time. If all requests were sent at
// once, the last would wait 6 s, and an attempt has 5 s. With a configured capacity almost none times out, and the
// number of outstanding requests stays within it. Without one, no task is lost.
func TestRunOverload(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		t.Parallel()
		o := OverloadOptions{Options: small(func(l *Load) { l.AttemptWithin = 5 * time.Second }), Capacity: 50, Takes: 200 * time.Millisecond, Times: 2, For: 6 * time.Second}
		o.Cluster = &kafka.Config{Brokers: b.Addrs}
		r, err := RunOverload(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Parts) != 2 || !r.Verified || r.Configured != 75 {
			t.Fatalf("%+v", r)
		}
		for _, p := range r.Parts {
			t.Logf("%+v", *p)
			if p.Tasks != 750 || p.Undone > 0 || p.Attempts != p.Tasks+p.TimedOut {
				t.Errorf("%+v", *p)
			}
			if p.Drained < p.Least || p.Least != 3 {
				t.Errorf("drained in %v s, which takes %v at least", p.Drained, p.Least)
			}
		}
		// On a busy machine a few replies may take longer than an attempt has.
		if p := r.Parts[0]; p.TimedOut > p.Tasks/20 || p.Outstanding > r.Configured {
			t.Errorf("with a capacity of %d: %+v", r.Configured, *p)
		}
	})
}

// TestRunAway: while no agent runs, only the attempts sent before that was detected time out, and those of probes. No
// task is lost.
func TestRunAway(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	t.Parallel()
	o := OverloadOptions{Options: small(func(l *Load) { l.AttemptWithin = time.Second }), Capacity: 80, Takes: 100 * time.Millisecond, Times: 1, For: time.Second, Away: 6 * time.Second}
	r, err := RunOverload(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Parts) != 4 {
		t.Fatalf("%+v", r)
	}
	for _, p := range r.Parts[2:] {
		t.Logf("%+v", *p)
		if p.Tasks != 120 || p.Undone > 0 || p.TimedOut == 0 || p.Attempts >= 2*p.Tasks {
			t.Errorf("%+v", *p)
		}
	}
}

func TestOverloadIsChecked(t *testing.T) {
	good := OverloadOptions{Options: small(nil), Capacity: 100, Takes: time.Second, Times: 2, For: time.Second}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*OverloadOptions){
		"no capacity":    func(o *OverloadOptions) { o.Capacity = 0 },
		"calls at once":  func(o *OverloadOptions) { o.Takes = time.Hour },
		"no time":        func(o *OverloadOptions) { o.For = 0 },
		"never there":    func(o *OverloadOptions) { o.Away = -1 },
		"too many tasks": func(o *OverloadOptions) { o.For = 1000 * time.Hour },
		"too fast":       func(o *OverloadOptions) { o.Times = 1e7 },
		"load":           func(o *OverloadOptions) { o.Load.Workers = 0 },
	} {
		o := good
		change(&o)
		if o.check() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestPaceOfAnOverload: tasks are due at the configured rates, in both phases.
func TestPaceOfAnOverload(t *testing.T) {
	o := OverloadOptions{Capacity: 10, Times: 3, For: 2 * time.Second, Away: 4 * time.Second}
	var second []int
	for _, there := range []bool{true, false} {
		pace := o.pace(there)
		for i := range o.total(there) {
			at := int(pace(i) / time.Second)
			for len(second) <= at {
				second = append(second, 0)
			}
			second[at]++
		}
	}
	if want := []int{30 + 3, 30 + 2, 5 + 3, 5 + 2}; !slices.Equal(second, want) {
		t.Errorf("%v tasks in each second, want %v", second, want)
	}
}
