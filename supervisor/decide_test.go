package supervisor

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the transcripts; review the difference as a change of design")

// epoch is the instant 0s in the transcripts.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestDecideTranscripts runs testdata/decide/*.txt. A file has a policy and the timers that are due under it. After
// each "now" it has the expected recoveries, in lines that begin with ">". Instants are seconds after epoch.
func TestDecideTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/decide/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in testdata/decide (%v)", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := runTranscript(string(want))
			if err != nil {
				t.Fatal(err)
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("%s differs from the decisions; got:\n%s\nIf the change is intended, run go test -run Transcripts -rewrite", file, got)
			}
		})
	}
}

func runTranscript(script string) (string, error) {
	var out strings.Builder
	var policy events.Policy
	var due []events.Due
	for n, line := range strings.Split(strings.TrimSuffix(script, "\n"), "\n") {
		if strings.HasPrefix(line, ">") {
			continue
		}
		out.WriteString(line + "\n")
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		args := arguments(words[1:])
		switch words[0] {
		case "policy":
			policy, due = args.policy(), nil
		case "due":
			due = append(due, args.due(policy))
		case "now":
			for _, a := range decide(due, args.instant(words[1])) {
				out.WriteString("> " + describe(a) + "\n")
			}
			due = nil
		default:
			args.err = errors.New("no such line; policy, due or now")
		}
		if args.err != nil {
			return "", fmt.Errorf("line %d, %q: %w", n+1, line, args.err)
		}
	}
	return out.String(), nil
}

func describe(a timerRecovery) string {
	s := fmt.Sprintf("%s timer %d: ", a.due.Task, a.due.Armed.Timer.Seq)
	if r := a.recovery; r == nil {
		s += "nothing"
	} else {
		s += string(r.Action)
		if r.Step != "" {
			s += fmt.Sprintf(" %s/%s", r.Step, r.Kind)
		}
		if !r.CompleteBy.IsZero() {
			s += fmt.Sprintf(" complete by %v", r.CompleteBy.Sub(epoch))
		}
		if !r.Until.IsZero() {
			s += fmt.Sprintf(" until %v", r.Until.Sub(epoch))
		}
	}
	return s + fmt.Sprintf("; again after %v", a.snooze)
}

// args holds the name=value words of a line.
type args struct {
	named map[string]string
	err   error
}

func arguments(words []string) *args {
	a := &args{named: map[string]string{}}
	for _, w := range words {
		if name, value, ok := strings.Cut(w, "="); ok {
			a.named[name] = value
		}
	}
	return a
}

func (a *args) number(name string) int {
	if a.named[name] == "" {
		return 0
	}
	n, err := strconv.Atoi(a.named[name])
	if err != nil {
		a.err = err
	}
	return n
}

func (a *args) span(name string) time.Duration {
	if a.named[name] == "" {
		return 0
	}
	d, err := time.ParseDuration(a.named[name])
	if err != nil {
		a.err = err
	}
	return d
}

func (a *args) instant(s string) time.Time {
	if s == "" {
		return time.Time{}
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		a.err = err
	}
	return epoch.Add(d)
}

func (a *args) policy() events.Policy {
	factor, err := strconv.ParseFloat(a.named["factor"], 64)
	if a.named["factor"] != "" && err != nil {
		a.err = err
	}
	return events.Policy{
		Timer: events.TimerKind(a.named["timer"]), FailureCount: a.number("failures"), OnError: a.named["on_error"],
		CompleteBy: a.instant(a.named["task_complete_by"]), CooledDown: a.number("cooled_down") == 1,
		Attempts: events.Attempts{CompleteWithin: a.span("complete_within"), MaxAttempts: a.number("max_attempts"),
			Backoff: a.span("backoff"), Factor: factor, Max: a.span("max"), CoolDown: a.span("cool_down")},
	}
}

func (a *args) due(p events.Policy) events.Due {
	step, kind, _ := strings.Cut(a.named["slot"], "/")
	return events.Due{Task: a.named["task"], Asked: a.number("asked"), Armed: events.Armed{
		Slot: events.Slot{Step: step, Kind: events.Kind(kind)}, Attempt: a.number("attempt"), Policy: p,
		Timer: events.Timer{Seq: uint64(a.number("seq")), Due: a.instant(a.named["at"])},
	}}
}

func TestRepeatAfterDoublesToItsLimit(t *testing.T) {
	want := []time.Duration{1, 2, 4, 8, 16, 30, 30, 30}
	for asked, w := range want {
		if got := repeatAfter(asked); got != w*time.Second {
			t.Errorf("repeatAfter(%d) = %v, want %v", asked, got, w*time.Second)
		}
	}
	if got := repeatAfter(1 << 30); got != RepeatAfterMax {
		t.Errorf("pause of a timer asked about 2^30 times: %v", got)
	}
}

// TestRecoveriesAreReadable checks that the scheduler can read all recoveries, whatever the policy.
func TestRecoveriesAreReadable(t *testing.T) {
	ns := events.Namespace(events.DefaultNamespace)
	for _, timer := range []events.TimerKind{events.TimerTask, events.TimerAttempt, events.TimerFailed, events.TimerWaiting} {
		for _, onError := range []string{events.OnErrorUndo, events.OnErrorHold, "", "explode"} {
			for failures := range 4 {
				p := events.Policy{Timer: timer, OnError: onError, FailureCount: failures,
					Attempts: events.Attempts{MaxAttempts: 2, Backoff: time.Second, CompleteWithin: time.Second, CoolDown: time.Minute}}
				slot := events.Slot{Step: "s", Kind: events.Do}
				if timer == events.TimerTask {
					slot = events.Slot{}
				}
				d := events.Due{Task: "t", Armed: events.Armed{Slot: slot, Timer: events.Timer{Seq: 3, Due: epoch}, Policy: p}}
				a := decide([]events.Due{d}, epoch)[0]
				if a.recovery == nil {
					if onError == events.OnErrorUndo || onError == events.OnErrorHold {
						t.Errorf("nothing is asked for under %+v", p)
					}
					continue
				}
				r := a.recovery.Record(ns, "test", 1)
				if _, _, err := events.DecodeInput(events.Recoveries, &r); err != nil {
					t.Errorf("policy %+v: %v", p, err)
				}
			}
		}
	}
}
