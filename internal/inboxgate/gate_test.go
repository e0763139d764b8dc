package inboxgate

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// paused is a client that records pauses, and fails on a repeated pause or resume.
type paused struct {
	t  rapid.TB
	in map[Inbox]bool
}

func (p *paused) Pause(in Inbox) {
	if p.in[in] {
		p.t.Fatalf("%v is paused twice", in)
	}
	p.in[in] = true
}

func (p *paused) Resume(in Inbox) {
	if !p.in[in] {
		p.t.Fatalf("%v is resumed, and wasn't paused", in)
	}
	delete(p.in, in)
}

// hold is one reason for one inbox in the model.
type hold struct {
	in  Inbox
	why Reason
}

// inboxes are two topics with two partitions each, and both topics as a whole.
func inboxes() (all []Inbox) {
	for _, topic := range []string{"tasks", "replies"} {
		for p := AllPartitions; p < 2; p++ {
			all = append(all, Inbox{topic, p})
		}
	}
	return all
}

// In any order in which reasons begin and end, an inbox is paused exactly while at least one reason pauses it.
func TestInboxFlowsOnlyWithoutReasons(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		client := &paused{t, map[Inbox]bool{}}
		g, model, now := New(client), map[hold]time.Time{}, time.Unix(0, 0).UTC()
		in, why := rapid.SampledFrom(inboxes()), rapid.IntRange(0, int(reasonCount)-1)
		t.Repeat(map[string]func(*rapid.T){
			"hold": func(t *rapid.T) {
				h, until := hold{in.Draw(t, "inbox"), Reason(why.Draw(t, "why"))}, time.Time{}
				if s := rapid.IntRange(-1, 3).Draw(t, "seconds"); s > 0 {
					until = now.Add(time.Duration(s) * time.Second)
				}
				g.Pause(h.in, h.why, until)
				model[h] = until
			},
			"release": func(t *rapid.T) {
				h := hold{in.Draw(t, "inbox"), Reason(why.Draw(t, "why"))}
				g.Resume(h.in, h.why)
				delete(model, h)
			},
			"replace": func(t *rapid.T) {
				h := hold{in.Draw(t, "inbox"), Reason(why.Draw(t, "why"))}
				g.PauseOnly(h.in, h.why)
				maps.DeleteFunc(model, func(m hold, _ time.Time) bool { return m.in == h.in })
				model[h] = time.Time{}
			},
			"time passes": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "seconds")) * time.Second)
				g.ResumeDue(now)
				maps.DeleteFunc(model, func(_ hold, until time.Time) bool { return !until.IsZero() && !now.Before(until) })
			},
			"": func(t *rapid.T) { compare(t, g, client, model) },
		})
	})
}

func compare(t *rapid.T, g *Gate, client *paused, model map[hold]time.Time) {
	held, next := map[Inbox]bool{}, time.Time{}
	for h, until := range model {
		held[h.in] = true
		if !g.IsPausedFor(h.in, h.why) {
			t.Fatalf("%v doesn't hold %v", h.why, h.in)
		}
		if !until.IsZero() && (next.IsZero() || until.Before(next)) {
			next = until
		}
	}
	if !maps.Equal(client.in, held) {
		t.Fatalf("paused are %v; held are %v", client.in, held)
	}
	if !g.NextDue().Equal(next) {
		t.Fatalf("next due is %v; want %v", g.NextDue(), next)
	}
	for _, in := range inboxes() {
		if want := !held[in] && !held[Inbox{in.Topic, AllPartitions}]; g.Flows(in) != want {
			t.Fatalf("%v flows: %v; want %v", in, g.Flows(in), want)
		}
	}
}

// All reasons pause one inbox. In each order of their ends, it flows after the last one, and not before.
func TestEachOrderOfReasons(t *testing.T) {
	in, orders := Inbox{"tasks", 0}, 0
	for subset := 1; subset < 1<<reasonCount; subset++ {
		var set []Reason
		for r := range reasonCount {
			if subset>>r&1 == 1 {
				set = append(set, r)
			}
		}
		permute(set, 0, func(order []Reason) {
			orders++
			client := &paused{t, map[Inbox]bool{}}
			g := New(client)
			for _, r := range set {
				g.Pause(in, r, time.Time{})
			}
			for i, r := range order {
				if !client.in[in] {
					t.Fatalf("it flows after %v of %v ended", order[:i], order)
				}
				g.Resume(in, r)
			}
			if client.in[in] {
				t.Fatalf("it is paused after all of %v ended", order)
			}
		})
	}
	if orders != 109600 { // the sum of 8!/(8-k)! for k of 1 to 8
		t.Errorf("%d orders were tried", orders)
	}
}

func permute(set []Reason, from int, each func([]Reason)) {
	if from == len(set) {
		each(slices.Clone(set))
		return
	}
	for i := from; i < len(set); i++ {
		set[from], set[i] = set[i], set[from]
		permute(set, from+1, each)
		set[from], set[i] = set[i], set[from]
	}
}

func TestReasonsHaveNames(t *testing.T) {
	for r := range reasonCount {
		if r.String() == "" {
			t.Errorf("reason %d has no name", r)
		}
	}
}
