package bench

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/workflow"
)

func TestCheckNamesEveryFault(t *testing.T) {
	good := DefaultLoad()
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	bad := Load{Warmup: -1, FanOut: true, Inflight: -1, Rate: -1, UndoShare: 2}
	err := bad.Check()
	for _, word := range []string{"tasks", "warmup", "steps", "fan-out", "payload", "inflight", "rate", "partitions", "workers", "shares", "attempt-within"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q isn't among the faults: %v", word, err)
		}
	}
}

func TestSharesAreSpread(t *testing.T) {
	l := Load{Tasks: 10_000, UndoShare: 0.1, TimeoutShare: 0.05}
	for _, part := range [][2]int{{0, 1000}, {5000, 6000}} {
		counts := map[kind]int{}
		for n := part[0]; n < part[1]; n++ {
			counts[l.kindOf(n)]++
		}
		if u, o := counts[isUndone], counts[timesOut]; u < 95 || u > 105 || o < 45 || o > 55 {
			t.Errorf("of %v %d are undone and %d time out, want 100 and 50", part, u, o)
		}
	}
}

// TestInputs: an input is JSON, has exactly the requested size, and has the fields that steps use.
func TestInputs(t *testing.T) {
	for _, payload := range []int{minPayload, 300, 5000} {
		o := newOrders(payload)
		for _, in := range o.inputs[:100] {
			var v struct {
				Customer, Details string
				Total             int
			}
			if err := json.Unmarshal(in, &v); err != nil || v.Total == 0 || v.Customer == "" || len(in) != payload {
				t.Fatalf("an input of %d bytes, want %d: %s: %v", len(in), payload, in, err)
			}
		}
	}
}

func TestNumbersOfTasks(t *testing.T) {
	a, b := newOrders(300), newOrders(300)
	for _, n := range []int{0, 7, 123_456_789} {
		if got, ok := a.number([]byte(a.id(n))); !ok || got != n {
			t.Errorf("%s is number %d (%v), want %d", a.id(n), got, ok, n)
		}
		if _, ok := b.number([]byte(a.id(n))); ok {
			t.Errorf("%s counts as a task of another run", a.id(n))
		}
	}
	for _, id := range []string{"", "order-1", a.prefix + "12", a.prefix + "00000000x"} {
		if _, ok := a.number([]byte(id)); ok {
			t.Errorf("%q counts as a task of the run", id)
		}
	}
}

// TestNumbersOfSpreadTasks: spread ids can be mapped back to numbers, and ids of two runs are interleaved in their
// order.
func TestNumbersOfSpreadTasks(t *testing.T) {
	a, b := spreadOrders(300), spreadOrders(300)
	for _, n := range []int{0, 7, 1_000_000, 49_999_999} {
		if got, ok := a.number([]byte(a.id(n))); !ok || got != n {
			t.Errorf("%s is number %d (%v), want %d", a.id(n), got, ok, n)
		}
		if _, ok := b.number([]byte(a.id(n))); ok {
			t.Errorf("%s counts as a task of another run", a.id(n))
		}
	}
	for _, id := range []string{"", "order-1", "0000000x" + a.prefix, newOrders(300).id(1)} {
		if _, ok := a.number([]byte(id)); ok {
			t.Errorf("%q counts as a task of the run", id)
		}
	}
	first, turns := "", 0 // first: the run of the previous id in sorted order; turns: how often it changes
	var ids []string
	for n := range 1000 {
		ids = append(ids, a.id(n), b.id(n))
	}
	slices.Sort(ids)
	for _, id := range ids {
		if run := id[scatterDigits:]; run != first {
			first = run
			turns++
		}
	}
	if turns < 500 {
		t.Errorf("of 2,000 ids in order, %d times another run has the next", turns)
	}
}

func TestDefinitions(t *testing.T) {
	for _, l := range []Load{{Steps: 1}, {Steps: 3}, {Steps: 3, FanOut: true}, {Steps: 8, FanOut: true}, {Steps: 64}, {Steps: 258, FanOut: true}} {
		l.AttemptWithin = DefaultLoad().AttemptWithin
		d, err := l.Definition()
		if err != nil {
			t.Fatal(err)
		}
		needs := 0
		for i := range d.Steps {
			needs += len(d.Steps[i].Needs)
		}
		want := l.Steps - 1
		if l.FanOut {
			want = 2 * (l.Steps - 2)
		}
		if len(d.Steps) != l.Steps || needs != want {
			t.Errorf("%+v: %d steps with %d needs, want %d", l, len(d.Steps), needs, want)
		}
		if _, err := workflow.ParseJSON(d.Stored()); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
