package scheduler

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/waybill-run/waybill/events"
)

// parentOfT is the parent of the task in transcripts in which it is a child.
func parentOfT(depth int) *events.Parent {
	ref := events.RequestRef{Step: "book", Kind: events.Do, Attempt: 1}
	return &events.Parent{Task: "p", Step: "book", Attempt: 1, Token: testToken("p", ref), Depth: depth}
}

// childCommand runs a command about children. It reports whether there is one of this name.
func (s *script) childCommand(name string, words []string, rest json.RawMessage) bool {
	switch words[0] {
	case "submit-child": // submit-child DEPTH JSON: the task is a child of the task p
		s.decide(events.Tasks, &events.Submission{ID: "t", Workflow: name, Input: rest, Parent: parentOfT(s.number(words[1]))})
	case "submit-other": // submit-other WORKFLOW: another task p starts a child of this id
		p := parentOfT(1)
		p.Attempt = 2
		s.decide(events.Tasks, &events.Submission{ID: "t", Workflow: words[1], Input: json.RawMessage(`{}`), Parent: p})
	case "withdraw": // withdraw ATTEMPT [keep] [completed] [forged]: the parent withdraws the task
		ref := events.RequestRef{Step: "book", Kind: events.Undo, Attempt: s.number(words[1])}
		w := &events.Withdrawal{Task: "t", Parent: "p", Ref: ref, Token: testToken("p", ref), Started: parentOfT(1).TokenHash(), Why: "its parent is being undone"}
		for _, word := range words[2:] {
			w.Keep, w.Completed = w.Keep || word == "keep", w.Completed || word == "completed"
			if word == "forged" {
				w.Started = "AAAAAAAAAAAAAAAAAAAAAA"
			}
		}
		s.decide(events.Tasks, w)
	default:
		return false
	}
	return true
}

// childRecord prints a submission, a withdrawal, or a reply to the parent. It reports whether the record is one.
func (s *script) childRecord(r *events.Record) bool {
	inbox, ok := events.ParseInbox(strings.TrimPrefix(r.Topic, events.DefaultNamespace))
	if !ok {
		return false
	}
	_, in, err := events.DecodeInput(inbox, r)
	if err != nil {
		s.t.Fatal(err)
	}
	switch in := in.(type) {
	case *events.Submission:
		p := in.Parent
		fmt.Fprintf(&s.out, "  submit %s of %s/%d for %s depth=%d by=+%s %s\n", in.ID, in.Workflow, in.Version, events.RequestID(p.Task, p.Ref()), p.Depth, in.CompleteBy.Sub(s.start), in.Input)
	case *events.Withdrawal:
		fmt.Fprintf(&s.out, "  withdraw %s for %s completed=%v keep=%v %s\n", in.Task, events.RequestID(in.Parent, in.Ref), in.Completed, in.Keep, in.Why)
	case *events.Reply:
		s.say(fmt.Sprintf("  tell %s %s %s", events.RequestID(in.Task, in.Ref), in.Outcome, in.Body))
	case *events.Control, *events.Recovery, *events.Signal:
		return false
	}
	return true
}
