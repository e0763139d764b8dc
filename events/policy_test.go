package events

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// policyTranscript is a transcript. "policy" sets the rule and how much of it is used. "next" asks at an instant, and
// the answer follows. Instants are durations since the timer's due.
const policyTranscript = "testdata/policy.txt"

func TestPolicyTranscript(t *testing.T) {
	data, err := os.ReadFile(policyTranscript)
	if err != nil {
		t.Fatal(err)
	}
	var p Policy
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if strings.HasPrefix(line, "  ") {
			continue // an answer
		}
		out.WriteString(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "policy":
			p = parsePolicy(t, words[1:])
		case words[0] == "next":
			out.WriteString("  " + answer(&p, parseDuration(t, words[1])) + "\n")
		default:
			t.Fatalf("%s: unknown line %q", policyTranscript, line)
		}
	}
	if *update {
		if err := os.WriteFile(policyTranscript, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if out.String() != string(data) {
		t.Errorf("%s: the policy answers\n%s\nA changed answer is a changed design: if it is meant, go test ./events -run Policy -update and review it.", policyTranscript, out.String())
	}
}

func answer(p *Policy, after time.Duration) string {
	due := epochStart
	a := p.Next("order-7", "charge", Do, 2, due, due.Add(after))
	s := string(a.Action)
	if !a.CompleteBy.IsZero() {
		s += fmt.Sprintf(" complete_by=%s", a.CompleteBy.Sub(due))
	}
	if !a.Until.IsZero() {
		s += fmt.Sprintf(" until=%s", a.Until.Sub(due))
	}
	if a.CoolDown {
		s += " cool_down"
	}
	return s
}

func parseDuration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("%s: %v", policyTranscript, err)
	}
	return d
}

func parsePolicy(t *testing.T, words []string) Policy {
	p := Policy{Timer: TimerKind(words[0])}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		number := func() int {
			n, err := strconv.Atoi(v)
			if err != nil {
				t.Fatalf("%s: %v", policyTranscript, err)
			}
			return n
		}
		switch k {
		case "failures":
			p.FailureCount = number()
		case "max_attempts":
			p.Attempts.MaxAttempts = number()
		case "factor":
			p.Attempts.Factor = float64(number())
		case "within":
			p.Attempts.CompleteWithin = parseDuration(t, v)
		case "backoff":
			p.Attempts.Backoff = parseDuration(t, v)
		case "max":
			p.Attempts.Max = parseDuration(t, v)
		case "cool_down":
			p.Attempts.CoolDown = parseDuration(t, v)
		case "task_ends":
			p.CompleteBy = epochStart.Add(parseDuration(t, v))
		case "on_error":
			p.OnError = v
		case "cooled_down":
			p.CooledDown = true
		case "final":
			p.Final = true
		default:
			t.Fatalf("%s: unknown setting %q", policyTranscript, w)
		}
	}
	return p
}

// drawExtreme draws rules as a definition or a corrupt log could have.
func drawExtreme(t *rapid.T) Attempts {
	d := func(name string) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(1000*24*time.Hour)).Draw(t, name))
	}
	return Attempts{CompleteWithin: d("within"), MaxAttempts: rapid.IntRange(0, 1000).Draw(t, "max_attempts"), Backoff: d("backoff"),
		Factor: rapid.Float64Range(0, 1e6).Draw(t, "factor"), Max: d("max"), CoolDown: d("cool_down")}
}

// TestDelay checks that the backoff is between four fifths and all of backoff times factor to the power of failures-1,
// at most max. It is deterministic, never negative, and without jitter it never decreases.
func TestDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawExtreme(t)
		failures, attempt := rapid.IntRange(1, 2000).Draw(t, "failures"), rapid.IntRange(1, 100).Draw(t, "attempt")
		task := rapid.String().Draw(t, "task")
		full := func(n int) time.Duration {
			d := float64(a.Backoff)
			for i := 1; i < n && d < float64(MaxDelay); i++ {
				d *= max(a.Factor, 1)
			}
			most := min(time.Duration(min(d, float64(MaxDelay))), MaxDelay)
			if a.Max > 0 {
				most = min(most, a.Max)
			}
			return most
		}
		got, most := a.Delay(task, "s", Do, attempt, failures), full(failures)
		slack := time.Millisecond + most/1e9 // cut to milliseconds, and floats
		if got < most*4/5-slack || got > most+slack || got < 0 {
			t.Fatalf("%+v: after %d failures %s, want between 4/5 and all of %s", a, failures, got, most)
		}
		if again := a.Delay(task, "s", Do, attempt, failures); again != got {
			t.Fatalf("asked twice: %s, %s", got, again)
		}
		if after := full(failures + 1); after < most {
			t.Fatalf("after one more failure %s instead of %s", after, most)
		}
	})
}

// TestJitterSpreads checks that attempts which failed together aren't retried together.
func TestJitterSpreads(t *testing.T) {
	a := Attempts{Backoff: time.Second}
	buckets := map[int]int{}
	for i := range 1000 {
		buckets[int(a.Delay("order-"+strconv.Itoa(i), "charge", Do, 1, 1)/(20*time.Millisecond))]++
	}
	for b := 40; b < 50; b++ { // 800 to 1000 ms
		if buckets[b] < 50 {
			t.Errorf("%d of 1000 tasks between %d and %d ms: %v", buckets[b], b*20, b*20+20, buckets)
		}
	}
}

// TestNextMonotone checks that later calls of Next go from wait to retry and never back. A run that was given up stays
// so. No attempt ends after the task's complete-by.
func TestNextMonotone(t *testing.T) {
	order := map[Action]int{ActionWait: 0, ActionRetry: 1, ActionUndo: 2, ActionHold: 2}
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{Timer: rapid.SampledFrom([]TimerKind{TimerTask, TimerAttempt, TimerFailed, TimerWaiting}).Draw(t, "timer"),
			FailureCount: rapid.IntRange(0, 1000).Draw(t, "failures"), Attempts: drawExtreme(t), CooledDown: rapid.Bool().Draw(t, "cooled"),
			OnError: rapid.SampledFrom([]string{OnErrorUndo, OnErrorHold}).Draw(t, "on_error")}
		if rapid.Bool().Draw(t, "bounded") {
			p.CompleteBy = epochStart.Add(time.Duration(rapid.Int64Range(0, int64(1000*24*time.Hour)).Draw(t, "complete_by"))).Truncate(time.Millisecond)
		}
		now, was := epochStart, -1
		var first NextRecovery
		for i := range 5 {
			a := p.Next("order-7", "charge", Do, 2, epochStart, now)
			if i == 0 {
				first = a
			}
			if order[a.Action] < was {
				t.Fatalf("at %s %s, before that %s: %+v", now.Sub(epochStart), a.Action, first.Action, p)
			}
			was = order[a.Action]
			if a.Action == ActionWait && (a.Until != first.Until || a.CoolDown && (p.CooledDown || p.Timer == TimerWaiting)) {
				t.Fatalf("waits until %s (cool-down %v), first until %s: %+v", a.Until, a.CoolDown, first.Until, p)
			}
			if a.CoolDown && !p.CompleteBy.IsZero() && !a.Until.Before(p.CompleteBy) {
				t.Fatalf("cools down until %s, the task ends at %s", a.Until, p.CompleteBy)
			}
			if a.Action == ActionRetry && !p.CompleteBy.IsZero() && a.CompleteBy.After(p.CompleteBy) {
				t.Fatalf("an attempt until %s, the task ends at %s", a.CompleteBy, p.CompleteBy)
			}
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(1000*24*time.Hour)).Draw(t, "later")))
		}
	})
}

// TestBudget plays a run that always fails. Attempts and waits alternate. After max_attempts, and one attempt past the
// cool-down, on_error follows.
func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAttempts(t)
		p := Policy{Attempts: a, OnError: OnErrorHold}
		now, attempts, cooled := epochStart, 1, 0
		for range 3 * (a.MaxAttempts + 2) {
			p.Timer = rapid.SampledFrom([]TimerKind{TimerAttempt, TimerFailed}).Draw(t, "how")
			counted := p
			if p.Timer == TimerFailed {
				counted.FailureCount++ // the event of the failure counts it
			}
			next := counted.Next("t", "s", Do, attempts, now, now)
			p.FailureCount++
			if next.Action == ActionWait {
				now = next.Until
				if next.CoolDown {
					cooled++
					p.CooledDown = true
				}
				p.Timer = TimerWaiting
				next = p.Next("t", "s", Do, attempts, now, now)
			}
			if next.Action == ActionHold {
				break
			}
			attempts++
		}
		want := max(a.MaxAttempts, 1)
		if a.CoolDown > 0 {
			want++
		}
		if attempts != want || cooled > 1 {
			t.Fatalf("%d attempts and %d cool-downs by %+v, want %d attempts", attempts, cooled, a, want)
		}
	})
}
