package workflowtest

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
)

// TestCasesKeepThePromises: the log of each case of the repository is one that `waybill verify` accepts, with its inputs,
// requests, alerts and dead letters. So a case can't end as no running system would.
func TestCasesKeepThePromises(t *testing.T) {
	cases := 0
	err := filepath.WalkDir(repository, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, Suffix) {
			return err
		}
		f, err := Load(name)
		if err != nil {
			return err
		}
		for _, c := range f.Cases {
			cases++
			if faults := verifyCase(f, c); faults != "" {
				t.Errorf("%s:%d: %s", name, c.Line, faults)
			}
		}
		return nil
	})
	if err != nil || cases < 20 {
		t.Fatalf("%d cases (%v): the test proves nothing", cases, err)
	}
}

// verifyCase runs a case, and returns the broken promises; empty: none.
func verifyCase(f *File, c *Case) string {
	ns := events.Namespace(events.DefaultNamespace)
	checker := verify.New(verify.Options{Keep: true, Inputs: true, Deadletters: true, Alerts: true, Requests: true, Whole: c.until == 0})
	var offset int64
	event := func(r *events.Record) {
		r.Offset = offset
		offset++
		checker.Event(r)
	}
	claim := &events.Event{Seq: 1, Epoch: 1, At: c.start, Fact: &events.PartitionClaimed{Owner: source}}
	first := claim.Record(ns, source, 0, claim.Seal(nil))
	event(&first)
	s := newSimulation(f, c)
	s.observeInput = checker.Input
	s.observeOutput = func(r *events.Record) {
		switch r.Topic {
		case ns.Events():
			event(r)
		case ns.Deadletters():
			checker.Deadletter(r)
		case ns.Alerts():
			checker.Alert(r)
		case ns.Answers(), ns.Notifications(), ns.Inbox(events.Tasks), ns.Inbox(events.Replies): // inputs of other tasks
		default:
			checker.Request(r)
		}
	}
	if err := s.run(); err != nil {
		return err.Error()
	}
	report := checker.Finish(s.now)
	if len(report.Faults) == 0 {
		return ""
	}
	return report.String()
}
