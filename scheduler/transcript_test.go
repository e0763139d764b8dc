package scheduler

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

var update = flag.Bool("update", false, "rewrite the transcripts; each change of one is a design change")

// TestTranscripts runs testdata/*.txt: a workflow, then commands, each followed by its outcome. See script.run for
// the commands.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := newScript(t).run(string(src))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(src) {
				t.Errorf("the transcript is another one now (-update rewrites it):\n%s", lineDiff(string(src), got))
			}
		})
	}
}

func lineDiff(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range g {
		if i >= len(w) || w[i] != g[i] {
			return fmt.Sprintf("first difference in line %d\nwant: %s\ngot:  %s\n\nwhole:\n%s", i+1, at(w, i), g[i], got)
		}
	}
	return fmt.Sprintf("want %d lines, got %d:\n%s", len(w), len(g), got)
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

// script runs one task. Decide is its scheduler, and the fold of its timers is its supervisor. After every input the
// state is compared with a rebuild from the events.
type script struct {
	t        *testing.T
	catalog  *CompiledDefinitions
	requests map[string]int32
	start    time.Time
	now      time.Time
	offset   int64
	task     *events.Task
	history  []events.Record
	whole    Histories
	timers   events.Timers
	out      strings.Builder
	version  int // to submit; 0: the newest
}

func newScript(t *testing.T) *script {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &script{t: t, catalog: &CompiledDefinitions{}, start: start, now: start,
		requests: map[string]int32{"inventory": 4, "payments": 4, "shipping": 4}}
}

// run executes a transcript: YAML up to a line of ---, perhaps of several versions with a line of ... between them, then commands, which begin with "> ". It returns the
// transcript with the actual outcomes.
func (s *script) run(src string) string {
	definition, commands, ok := strings.Cut(src, "\n---\n")
	if !ok {
		s.t.Fatal("no --- between the definition and the commands")
	}
	s.catalog.Rejected = func(key string, err error) { s.t.Fatalf("%s: %v", key, err) }
	var d *workflow.Definition
	for version := range strings.SplitSeq(definition, "\n...\n") {
		parsed, err := workflow.ParseYAML("workflow.yaml", []byte(version))
		if err != nil {
			s.t.Fatal(err)
		}
		if d == nil {
			d = parsed
		} else { // the first version is submitted
			s.version = d.Version
		}
		s.catalog.Apply(&events.Record{Key: []byte(parsed.Key()), Value: parsed.JSON()})
	}
	s.out.WriteString(definition + "\n---\n")
	for line := range strings.Lines(commands) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "#"):
			s.out.WriteString(line + "\n")
		case strings.HasPrefix(line, "> "):
			s.out.WriteString(line + "\n")
			long := repeated.ReplaceAllStringFunc(line[2:], repeat)
			s.command(d.Name, strings.Fields(long), long)
		}
	}
	return s.out.String()
}

// repeated is the syntax of a repeated byte in a command: <7f*1000>.
var repeated = regexp.MustCompile(`<([0-9a-f]{2})\*([0-9]+)>`)

func repeat(notation string) string {
	var b byte
	var n int
	if _, err := fmt.Sscanf(notation, "<%x*%d>", &b, &n); err != nil {
		panic(err)
	}
	return strings.Repeat(string(rune(b)), n)
}

// transcriptLine is the longest line that is printed in full.
const transcriptLine = 1000

func (s *script) say(line string) {
	if n := len(line); n > transcriptLine {
		line = fmt.Sprintf("%s... (%d bytes)", line[:transcriptLine/4], n)
	}
	s.out.WriteString(strings.ReplaceAll(line, "\x7f", "␡") + "\n")
}

func (s *script) command(name string, words []string, line string) {
	rest := func(n int) json.RawMessage {
		parts := strings.SplitN(line, " ", n+1)
		if len(parts) <= n {
			return nil
		}
		return json.RawMessage(parts[n])
	}
	switch words[0] {
	case "submit": // submit JSON
		s.decide(events.Tasks, &events.Submission{ID: "t", Workflow: name, Version: s.version, Input: rest(1), ReplyTo: "app.replies"})
	case "submit-by": // submit-by DURATION JSON
		s.decide(events.Tasks, &events.Submission{ID: "t", Workflow: name, Version: s.version, Input: rest(2), CompleteBy: s.start.Add(s.duration(words[1]))})
	case "submit-labels": // submit-labels LABELS JSON
		submission := &events.Submission{ID: "t", Workflow: name, Input: rest(2)}
		if err := json.Unmarshal([]byte(words[1]), &submission.Labels); err != nil {
			s.t.Fatal(err)
		}
		s.decide(events.Tasks, submission)
	case "submit-to": // submit-to WORKFLOW
		s.decide(events.Tasks, &events.Submission{ID: "t", Workflow: words[1], ReplyTo: "app.replies"})
	case "reply": // reply STEP/KIND/ATTEMPT OUTCOME[-none] JSON
		_, ref, err := events.ParseRequestID("t/" + words[1])
		if err != nil {
			s.t.Fatal(err)
		}
		outcome, none := strings.CutSuffix(words[2], "-none")
		r := &events.Reply{Task: "t", Ref: ref, Token: testToken("t", ref), Outcome: events.Outcome(outcome), Effect: events.EffectUnknown, Body: json.RawMessage("null")}
		if none {
			r.Effect = events.EffectNone
		}
		if body := rest(3); body != nil {
			r.Body = body
		}
		s.decide(events.Replies, r)
	case "defer": // defer STEP/KIND/ATTEMPT DURATION: no effect, and the agent asks to be called after DURATION
		_, ref, err := events.ParseRequestID("t/" + words[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.decide(events.Replies, &events.Reply{Task: "t", Ref: ref, Token: testToken("t", ref), Outcome: events.Failed, Effect: events.EffectNone, RetryAfter: s.duration(words[2]),
			Body: json.RawMessage(`{"code":"circuit_open"}`)})
	case "advance": // advance DURATION: only time passes
		s.now = s.now.Add(s.duration(words[1]))
	case "due": // the supervisor requests the recoveries of all due timers
		s.due()
	case "recover": // recover SEQ STEP/KIND ACTION: any recovery
		s.recover(words)
	case "undo-processed":
		s.decide(events.Controls, s.control(events.UndoTask, func(x *events.Control) { x.Processed = true }))
	case "keep": // from here on the task is what a store keeps of an ended one
		s.task = s.task.Finished()
	case "read": // read [WHY]: the task is read again from the log, or can't be
		s.read(strings.TrimPrefix(strings.TrimPrefix(line, "read"), " "))
	case "cancel", "cancel-keep", "undo", "resubmit":
		command, keep := strings.CutSuffix(words[0], "-keep")
		s.decide(events.Controls, s.control(events.Command(command), func(x *events.Control) { x.Keep = keep }))
	case "release": // release STEP AS JSON
		s.decide(events.Controls, s.control(events.Release, func(x *events.Control) {
			x.Step, x.As, x.Output = words[1], events.StepState(words[2]), rest(3)
		}))
	case "migrate", "migrate-dry": // migrate VERSION
		s.decide(events.Controls, s.control(events.Migrate, func(x *events.Control) {
			x.Version, x.DryRun = s.number(words[1]), words[0] == "migrate-dry"
		}))
	case "signal": // signal JSON, without the task
		s.signal(rest(1))
	case "signals": // signals N NAME: N signals of their own
		for i := range s.number(words[1]) {
			s.signal(json.RawMessage(fmt.Sprintf(`{"name":%q,"id":"n%d"}`, words[2], i+1)))
		}
	case "no-agent": // no-agent NAME: its request topic is deleted
		delete(s.requests, words[1])
	case "agent": // agent NAME
		s.requests[words[1]] = 4
	case "state":
		s.state()
	default:
		if !s.childCommand(name, words, rest(2)) {
			s.t.Fatalf("no command %q", words[0])
		}
	}
}

func (s *script) control(c events.Command, change func(*events.Control)) *events.Control {
	x := &events.Control{Task: "t", Command: c, By: events.By{Who: "op", Why: "test", RequestID: fmt.Sprint("req-", s.offset)}, ID: fmt.Sprint("req-", s.offset)}
	change(x)
	return x
}

func (s *script) signal(value json.RawMessage) {
	r := events.Record{Topic: "waybill.signals", Partition: 3, Offset: s.offset, Value: append([]byte(`{"task":"t",`), bytes.TrimPrefix(value, []byte("{"))...)}
	_, in, err := events.DecodeInput(events.Signals, &r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.decide(events.Signals, in)
}

func (s *script) number(text string) (n int) {
	if _, err := fmt.Sscan(text, &n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *script) recover(words []string) {
	var seq uint64
	if _, err := fmt.Sscan(words[1], &seq); err != nil {
		s.t.Fatal(err)
	}
	step, kind, _ := strings.Cut(words[2], "/")
	if step == "task" {
		step = ""
	}
	s.decide(events.Recoveries, &events.Recovery{Task: "t", Timer: seq, Step: step, Kind: events.Kind(kind), Action: events.Action(words[3])})
}

// due simulates the supervisor: it requests the recoveries of all due timers, the earliest first.
func (s *script) due() {
	armed := append([]events.Armed(nil), s.timers.Armed...)
	sort.SliceStable(armed, func(i, j int) bool { return armed[i].Timer.Due.Before(armed[j].Timer.Due) })
	for _, a := range armed {
		if a.Timer.Due.After(s.now) {
			continue
		}
		next := a.Policy.Next("t", a.Slot.Step, a.Slot.Kind, a.Attempt, a.Timer.Due, s.now)
		slot := "task"
		if a.Slot.Step != "" {
			slot = a.Slot.Step + "/" + string(a.Slot.Kind)
		}
		fmt.Fprintf(&s.out, "asks %s of timer %d (%s)\n", next.Action, a.Timer.Seq, slot)
		s.decide(events.Recoveries, a.Recovery("t", next))
	}
}

func (s *script) decide(inbox events.Inbox, in events.Input) {
	s.offset++
	env := &Env{Token: testToken, Now: s.now, Namespace: events.DefaultNamespace, Source: "test", Definitions: s.catalog, DefinitionsRead: true, Requests: s.requests, Epoch: 1, Histories: s.whole}
	d := Decide(s.task.Clone(), in, events.Cause{Inbox: inbox, Offset: s.offset}, env)
	if d.NeedHistory {
		s.out.WriteString("needs the history\n")
		return
	}
	s.task = d.Task
	if d.Ignored != "" {
		fmt.Fprintf(&s.out, "ignored: %s\n", d.Ignored)
	}
	if d.Unusable != nil {
		fmt.Fprintf(&s.out, "dead letter: %s\n", d.Unusable)
	}
	for i := range d.Records {
		s.record(&d.Records[i])
	}
	s.rebuild()
}

// record prints one record of a decision, and keeps events for rebuild.
func (s *script) record(r *events.Record) {
	if n := clientBytes(r); n > maxRecordBytes {
		s.t.Errorf("a record of %d bytes to %s", n, r.Topic)
	}
	ns := events.Namespace(events.DefaultNamespace)
	switch r.Topic {
	case ns.Events():
		s.history = append(s.history, *r)
		e, err := events.DecodeEvent(r)
		if err != nil {
			s.t.Fatal(err)
		}
		s.timers.Evolve(e)
		s.event(e, r)
	case ns.Notifications():
		n, err := events.DecodeNotification(r)
		if err != nil {
			s.t.Fatal(err)
		}
		id, _ := r.Header(events.HeaderID)
		fmt.Fprintf(&s.out, "  notify %s of %s %s\n", n.Status, id, n.Reason)
	case ns.Answers():
		a, err := events.DecodeAnswer(r)
		if err != nil {
			s.t.Fatal(err)
		}
		fmt.Fprintf(&s.out, "  answer accepted=%v seq=%d %s\n", a.Accepted, a.Seq, a.Reason)
	case ns.Alerts():
		a, err := events.DecodeAlert(r)
		if err != nil {
			s.t.Fatal(err)
		}
		s.say(fmt.Sprintf("  alert %s %s: %s", a.Code, a.Step, a.Message))
	default:
		if s.childRecord(r) {
			return
		}
		q, err := events.DecodeRequest(r)
		if err != nil {
			s.t.Fatal(err)
		}
		fmt.Fprintf(&s.out, "  request %s/%d %s key=%s by=+%s%s %s\n", strings.TrimPrefix(r.Topic, "waybill.requests."), r.Partition, q.Operation, q.IdempotencyKey, q.CompleteBy.Sub(s.start), heartbeatText(q), q.Value)
	}
}

// heartbeatText prints a request's heartbeat and its last progress.
func heartbeatText(q *events.Request) (s string) {
	if q.Heartbeat > 0 {
		s = " heartbeat=" + q.Heartbeat.String()
	}
	if len(q.Progress) > 0 {
		s += " progress=" + string(q.Progress)
	}
	return s
}

func (s *script) event(e *events.Event, r *events.Record) {
	name := strings.TrimSuffix(strings.TrimPrefix(e.Fact.Type(), "waybill."), ".v1")
	var data map[string]any
	if err := json.Unmarshal(r.Value, &data); err != nil {
		s.t.Fatal(err)
	}
	for _, k := range []string{"at", "cause", "epoch", "prev", "sum", "due", "policy", "plan", "digest", "workflow", "version", "by", "why", "request_id", "agent", "operation", "idempotency_key", "token_hash", "reply_to", "input", "processed"} {
		delete(data, k)
	}
	line := fmt.Sprintf("  %d %s", e.Seq, name)
	if f, ok := e.Fact.(*events.TaskUndoing); ok && len(f.Processed) > 0 {
		line += " with the processed task"
	}
	if len(data) > 0 {
		text, _ := json.Marshal(data)
		line += " " + string(text)
	}
	if f, ok := e.Fact.(*events.TaskMigrated); ok {
		line += fmt.Sprintf(" to=%d", f.Version)
	}
	if f, ok := e.Fact.(*events.TaskSignalled); ok && f.By != "" {
		line += " by=" + f.By
	}
	if _, ok := e.Fact.(*events.WaitCompleted); ok {
		line += " at=+" + e.At.Sub(s.start).String()
	}
	if !e.Due.IsZero() {
		line += " due=+" + e.Due.Sub(s.start).String()
	}
	s.say(line)
}

// read sets the history that a worker has read; why: that it can't be read.
func (s *script) read(why string) {
	s.whole = Histories{"t": {Task: s.fold(), Why: why}}
}

// rebuild folds the history again and compares the state. It is called after every input.
func (s *script) rebuild() {
	t := s.fold()
	if s.task != nil && s.task.Plan == nil {
		t = t.Finished()
	}
	if t == nil && s.task == nil {
		return
	}
	if got, want := string(t.Encode()), string(s.task.Encode()); got != want {
		s.t.Fatalf("the rebuild differs from the live state:\n%s\n%s", got, want)
	}
}

// fold folds the history.
func (s *script) fold() (t *events.Task) {
	for i := range s.history {
		r := &s.history[i]
		e, err := events.DecodeEvent(r)
		if err != nil {
			s.t.Fatal(err)
		}
		if t, err = events.Evolve(t, e, events.Hash(e.Fact.Type(), r.Value)); err != nil {
			s.t.Fatal(err)
		}
	}
	return t
}

func (s *script) state() {
	if s.task == nil {
		s.out.WriteString("= no task\n")
		return
	}
	fmt.Fprintf(&s.out, "= %s failures=%d", s.task.State, s.task.FailureCount)
	for i := range s.task.Steps {
		st := s.task.Steps[i]
		fmt.Fprintf(&s.out, " %s:%s", s.task.Plan.Steps[i].ID, st.State)
		if st.Unknown {
			s.out.WriteString("?")
		}
	}
	s.out.WriteString("\n")
}

// TestNestingIsBounded nests the input of each step deeper. Beyond the depth that can be decoded the step fails, and
// the log stays readable.
func TestNestingIsBounded(t *testing.T) {
	deep := strings.Repeat("[", events.MaxJSONDepth-2) + strings.Repeat("]", events.MaxJSONDepth-2)
	definition := "workflow: w\nversion: 1\ncomplete_within: 1m\ndefaults: {complete_within: 1s}\nsteps:\n" +
		"  a: {agent: inventory, operation: o, input: {a: {b: {c: \"${ input }\"}}}}\n---\n"
	got := newScript(t).run(definition + "> submit " + deep + "\n> state\n")
	if !strings.Contains(got, "nests deeper than") || !strings.Contains(got, "= undone") {
		t.Errorf("got:\n%s", got)
	}
}

// TestErrorsAreBounded checks that an error that is too large is replaced before its event is created, and in its
// notification and alert, too.
func TestErrorsAreBounded(t *testing.T) {
	large := strings.Repeat("\x01", 400<<10)
	for _, fact := range []events.Fact{
		&events.AttemptFailed{Kind: events.Do, Step: "a", Attempt: 1, Error: &events.Error{Code: large, Message: large}},
		&events.AttemptRejected{Kind: events.Do, Step: "a", Attempt: 1, Error: &events.Error{Code: "no", Details: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}},
		&events.RunErrored{Kind: events.Do, Step: "a", Error: &events.Error{Code: "no", Message: large}},
		&events.TaskHeld{Error: &events.Error{Code: "no", Message: large, Step: "a"}},
		&events.TaskUndoing{Ending: events.StateUndone, Error: &events.Error{Code: "no", Message: large, Step: "a"}},
	} {
		s := newScript(t)
		s.run("workflow: w\nversion: 1\ncomplete_within: 1m\ndefaults: {complete_within: 1s}\nsteps:\n  a: {agent: inventory, operation: o}\n---\n> submit {}\n")
		d := newDecider(s.task, events.Cause{Inbox: events.Replies, Offset: 9}, &Env{Token: testToken, Now: s.now, Namespace: events.DefaultNamespace, Source: "test", Epoch: 1})
		d.emit(fact, time.Time{}, nil)
		about := d.Events[0].Fact.About()
		err := about.Error()
		if err.Code != events.CodeTooLarge || !strings.Contains(err.Message, "at most") {
			t.Errorf("%s: code %.20s", fact.Type(), err.Code)
		}
		for i := range d.Records {
			s.record(&d.Records[i])
		}
		s.task = d.Task
		s.rebuild()
	}
}

// TestSharedInputCountsOnce checks that an input that steps share is counted and written once. Each step refers to it,
// and a restore finds it. The undo contains it, too, and may add any number of members.
func TestSharedInputCountsOnce(t *testing.T) {
	input := `{"rows":"` + strings.Repeat("x", 360_000) + `","many":{`
	for i := range 600 {
		input += fmt.Sprintf(`"m%d":%d,`, i, i)
	}
	input += `"last":1.0}}`
	s := newScript(t)
	s.run("workflow: w\nversion: 1\ncomplete_within: 1m\ndefaults: {complete_within: 1s}\nsteps:\n" +
		"  a: {agent: inventory, operation: o, input: \"${ input }\", undo: {operation: u, input: \"${ input.many }\"}}\n" +
		"  b: {agent: payments, operation: o, needs: [a], input: \"${ input }\"}\n---\n" +
		"> submit " + input + "\n> reply a/do/1 completed {}\n")
	for i, id := range []string{"a", "b"} {
		if st := s.task.Steps[i]; st.State == events.StepError || !st.TaskInput || string(st.Input) != input {
			t.Fatalf("step %s is %s, with an input of %d bytes, the task's: %v; %+v", id, st.State, len(st.Input), st.TaskInput, st.Error)
		}
	}
	if n := s.task.Bytes(); n > len(input)+1000 {
		t.Errorf("the task counts %d bytes, its input has %d", n, len(input))
	}
	written := 0
	for _, r := range s.history {
		written += len(r.Value)
	}
	if stored := len(s.task.Encode()); stored > len(input)+10_000 || written > len(input)+20_000 {
		t.Errorf("the input has %d bytes; the task is stored in %d, its events have %d", len(input), stored, written)
	}
	s.rebuild()
	s.task = s.task.Clone()
	second := events.RequestRef{Step: "b", Kind: events.Do, Attempt: 1}
	s.decide(events.Replies, &events.Reply{Task: "t", Ref: second, Token: testToken("t", second), Outcome: events.Rejected, Body: json.RawMessage(`{"code":"no"}`)})
	if u := s.task.Steps[0].Undo; u == nil || u.State != events.StepRunning {
		t.Fatalf("the task is %s, its undo %+v; %+v", s.task.State, u, s.task.Error)
	}
}
