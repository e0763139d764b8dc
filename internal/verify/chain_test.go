package verify

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
)

// settledHistories returns tasks that have ended or are held. Together they have all kinds of events.
func settledHistories(t *testing.T) map[string][]events.Record {
	t.Helper()
	by := events.By{Who: "olga", Why: "a test", RequestID: "request"}
	failed := &events.Error{Code: "no", Message: "no"}
	failedOf := func(step string) *events.Error { return &events.Error{Code: "no", Message: "no", Step: step} }
	all := map[string][]events.Record{}
	plays := map[string]func(h *history){
		"processed":             func(h *history) { h.processed() },
		"undone":                func(h *history) { h.undone() },
		"held, and resubmitted": func(h *history) { heldAndResubmitted(h, "waybill.t/c/do/2") },
		"after a cool-down":     backoffAndCoolDown,
		"skipped, then held": func(h *history) {
			h.holding().submit().add(do("a", 1)).reply("a", events.Do, 1, events.Completed).add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1})
			h.add(&events.RunSkipped{Step: "b"}).add(do("c", 1)).fails("c", events.Do, 1).recovery("c", events.Do, events.ActionHold)
			h.add(&events.RunErrored{Kind: events.Do, Step: "c", Error: failed}).add(&events.TaskHeld{Error: failedOf("c")})
		},
		"what was running when it was held": func(h *history) {
			h.holding().submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1)).reply("a", events.Do, 1, events.Rejected)
			h.add(&events.AttemptRejected{Kind: events.Do, Step: "a", Attempt: 1, Error: failed}).add(&events.TaskHeld{Error: failedOf("a")})
			h.reply("b", events.Do, 1, events.Completed).add(&events.AttemptCompleted{Kind: events.Do, Step: "b", Attempt: 1})
			h.later(time.Second).recovery("c", events.Do, events.ActionWait).add(&events.AttemptExpired{Kind: events.Do, Step: "c", Attempt: 1})
		},
		"released, and cancelled": func(h *history) {
			h.holding().submit().add(do("a", 1)).completes("a", events.Do).add(do("b", 1)).add(do("c", 1)).reply("b", events.Do, 1, events.Rejected)
			h.add(&events.AttemptRejected{Kind: events.Do, Step: "b", Attempt: 1, Error: failed}).add(&events.TaskHeld{Error: failedOf("b")})
			h.reply("c", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1, Error: failed})
			h.control(&events.Control{Command: events.Release}).add(&events.RunReleased{By: by, Step: "c", As: events.StepCompleted, Output: []byte(`{"by":"hand"}`)})
			again := by
			again.RequestID = "request 2"
			h.control(&events.Control{Command: events.Cancel, Keep: true}).add(&events.TaskUndoing{By: again, Ending: events.StateCancelled, Keep: true}).
				add(&events.TaskCancelled{})
		},
		"an undo that was held": func(h *history) {
			h.twoDone().undoing().add(undo("b", 1)).fails("b", events.Undo, 1).recovery("b", events.Undo, events.ActionWait)
			h.add(&events.AttemptWaiting{Kind: events.Undo, Step: "b", Attempt: 1})
			h.at = h.timer("b", events.Undo).Due
			h.recovery("b", events.Undo, events.ActionRetry).add(undo("b", 2)).later(time.Second).recovery("b", events.Undo, events.ActionHold)
			h.add(&events.AttemptExpired{Kind: events.Undo, Step: "b", Attempt: 2}).add(&events.RunErrored{Kind: events.Undo, Step: "b", Error: failed})
			h.add(&events.TaskHeld{Error: failedOf("b")})
		},
		"an undo that was rejected": func(h *history) {
			h.twoDone().undoing().add(undo("b", 1)).reply("b", events.Undo, 1, events.Rejected)
			h.add(&events.AttemptRejected{Kind: events.Undo, Step: "b", Attempt: 1, Error: failed}).add(&events.TaskHeld{Error: failedOf("b")})
		},
		"a caught step": func(h *history) {
			caughtA(h).completes("b", events.Do).completes("c", events.Do).add(&events.TaskProcessed{Output: []byte("null")})
		},
		"progress": func(h *history) { finishes(reports(fallsSilent(reports(beating(h), 1)), 2), 2) },
		"progress of an undo": func(h *history) {
			h.beats = 6 * time.Second
			h.twoDone().undoing().add(undo("b", 1)).completes("b", events.Undo).add(undo("a", 1))
			h.reply("a", events.Undo, 1, events.Progress).add(&events.AttemptProgressed{Kind: events.Undo, Step: "a", Attempt: 1, Progress: []byte("{}")})
			h.completes("a", events.Undo).add(&events.TaskUndone{})
		},
		"a repeat": func(h *history) {
			dueCall(polled(h)).add(call(2, 2)).later(time.Millisecond).reply("a", events.Do, 2, events.Completed).
				add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 2}).add(&events.TaskProcessed{Output: []byte("null")})
		},
		"a check": func(h *history) { answered(silent(h).add(ask(1)), 1, events.BecameCompleted).add(processedNow) },
		"checks without an answer": func(h *history) {
			checkable(h)
			checks := h.steps
			h.steps = func(steps []events.PlanStep) { checks(steps); steps[0].Check.Attempts = rule }
			waits := func(n int, cool bool) {
				h.recovery("a", events.Check, events.ActionWait).add(&events.AttemptWaiting{Kind: events.Check, Step: "a", Attempt: n, CoolDown: cool})
				h.at = h.timer("a", events.Check).Due
				h.recovery("a", events.Check, events.ActionRetry).add(ask(n + 1))
			}
			silentAs(h).add(ask(1)).fails("a", events.Check, 1)
			waits(1, false)
			h.fails("a", events.Check, 2)
			waits(2, true)
			h.at = h.timer("a", events.Check).Due
			h.recovery("a", events.Check, events.ActionHold).add(&events.AttemptExpired{Kind: events.Check, Step: "a", Attempt: 3})
			h.add(&events.RunErrored{Kind: events.Check, Step: "a", Error: failed}).add(do("a", 2)).later(time.Millisecond).reply("a", events.Do, 2, events.Completed)
			h.add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 2}).add(processedNow)
		},
		"a check that was rejected": func(h *history) {
			silent(h).add(ask(1)).later(time.Millisecond).reply("a", events.Check, 1, events.Rejected)
			h.add(&events.AttemptRejected{Kind: events.Check, Step: "a", Attempt: 1, Error: failed}).add(do("a", 2)).later(time.Millisecond)
			h.reply("a", events.Do, 2, events.Completed).add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 2}).add(processedNow)
		},
		"an id that is forgotten and used again": func(h *history) {
			usedAgain(h)
		},
		"a wait": func(h *history) {
			fire(bothCalls(startedWait(h)).later(10 * time.Second)).add(waited).add(&events.TaskProcessed{Output: []byte("null")})
		},
		"a migration": func(h *history) {
			aDone(h, 2).add(migration(h)).add(do("c", 1)).completes("b", events.Do).completes("c", events.Do).add(processedNow)
		},
		"signals": func(h *history) {
			taken(h).completes("c", events.Do).add(&events.TaskProcessed{Output: []byte("null")})
		},
	}
	maps.Copy(plays, childHistories)
	maps.Copy(plays, itemHistories)
	for name, play := range plays {
		h := newHistory(t, Options{})
		play(h)
		if faults := checked(h.all); len(faults) > 0 {
			t.Fatalf("%s: %v", name, faults)
		}
		if s := h.state.State; !s.Terminal() && s != events.StateError {
			t.Fatalf("%s: the task is %s: something has to follow", name, s)
		}
		all[name] = h.all
	}
	return all
}

// checked returns the faults found in events alone.
func checked(records []events.Record) []Fault {
	c := New(Options{})
	for i := range records {
		c.Event(&records[i])
	}
	return c.Finish(records[len(records)-1].Time).Faults
}

// names reports whether one of the faults is at an offset, or may be. If the hash of the event before was changed, the
// fault names both events.
func names(faults []Fault, offset int64) bool {
	return slices.ContainsFunc(faults, func(f Fault) bool {
		return f.Topic == topicEvents && (f.Offset == offset || f.Offset < offset && strings.Contains(f.What, fmt.Sprintf(" at events/0/%d,", offset)))
	})
}

// with returns the records with another value at one index.
func with(records []events.Record, at int, value []byte) []events.Record {
	edited := slices.Clone(records)
	edited[at].Value = value
	return edited
}

// Any changed byte of any event is found, also in a task's last event and in a claim. The fault names the event.
func TestAnyChangedByteIsFound(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	types, flips, every := map[string]bool{}, 0, suite.Of(t, 64, 1)
	for name, records := range settledHistories(t) {
		for i := range records {
			ceType, _, _ := events.EventName(&records[i])
			types[ceType] = true
			for at, was := range records[i].Value {
				if (at+i)%every != 0 {
					continue
				}
				for _, now := range []byte{was ^ byte(1<<rnd.IntN(8)), " \"\\0,}"[rnd.IntN(6)]} {
					if now == was {
						continue
					}
					value := bytes.Clone(records[i].Value)
					value[at] = now
					flips++
					if faults := checked(with(records, i, value)); !names(faults, records[i].Offset) {
						t.Fatalf("%s: event %d (%s) is not named, with byte %d changed from %q to %q in\n%s\nfaults: %v", name, i, ceType, at, was, now, records[i].Value, faults)
					}
				}
			}
		}
	}
	if got := slices.Sorted(maps.Keys(types)); !slices.Equal(got, events.Types()) {
		t.Errorf("changed were events of the types %v; there are %v", got, events.Types())
	}
	tally.Add(t, "changed bytes found", flips)
}

// A change in the middle is reported with the event that shows it. A removed checksum is detected.
func TestWhatIsSaidOfAChange(t *testing.T) {
	records := settledHistories(t)["processed"]
	last := len(records) - 1
	sum := func(r events.Record) int { return bytes.LastIndex(r.Value, []byte(`,"sum":`)) }
	for _, tt := range []struct {
		name string
		at   int
		edit func(value []byte) []byte
		want []string
	}{
		{"in the middle", 4, func(v []byte) []byte {
			return bytes.Replace(v, []byte(`"output":{}`), []byte(`"output":[]`), 1)
		},
			[]string{"P2", "events/0/4: event 4 hashes to", "the next, 5 at events/0/5,"}},
		{"the last", last, func(v []byte) []byte { return bytes.Replace(v, []byte(`:00.0`), []byte(`:01.0`), 1) },
			[]string{"P2", fmt.Sprintf("events/0/%d: it hashes to", last), "its sum says"}},
		{"the last, without its sum", last, func(v []byte) []byte { return append(v[:sum(records[last])], '}') },
			[]string{"P2", fmt.Sprintf("events/0/%d: it has no sum", last)}},
		{"the claim", 0, func(v []byte) []byte { return bytes.Replace(v, []byte(`"test"`), []byte(`"tess"`), 1) },
			[]string{"P2", "events/0/0: it hashes to"}},
		{"the claim, without its sum", 0, func(v []byte) []byte { return append(v[:sum(records[0])], '}') },
			[]string{"P2", "events/0/0: it has no sum"}},
	} {
		value := tt.edit(bytes.Clone(records[tt.at].Value))
		faults := checked(with(records, tt.at, value))
		for _, want := range tt.want {
			if bytes.Equal(value, records[tt.at].Value) || len(faults) != 1 || !strings.Contains(faults[0].String(), want) {
				t.Errorf("%s: %v, want one with %q", tt.name, faults, want)
			}
		}
	}
}
