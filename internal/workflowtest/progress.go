package workflowtest

import (
	"fmt"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/waybill-run/waybill/events"
)

// maxReports bounds the reports of progress in one attempt.
const maxReports = 10_000

// readProgress reads the fields of a reply that are about the reports before it.
func (r *reader) readProgress(reply *Reply, m member) {
	if m.name == "every" {
		reply.Every = r.durationOf(m.value, "every")
		return
	}
	list, ok := m.value.(*ast.SequenceNode)
	if !ok {
		r.fault(m.value, "progress isn't a list", "write the values in their order: progress: [{percent: 10}, {percent: 50}]")
		return
	}
	for _, v := range list.Values {
		reply.Progress = append(reply.Progress, r.jsonOf(v))
	}
}

func (r *reader) checkProgress(reply *Reply, n ast.Node) {
	switch {
	case len(reply.Progress) == 0 && reply.Every == 0:
	case len(reply.Progress) == 0 || reply.Every == 0:
		r.fault(n, "progress and every belong together", "write both: {progress: [{percent: 10}], every: 20s, completed: 1, after: 1h}")
	case int64(reply.After/reply.Every) > maxReports:
		r.fault(n, fmt.Sprintf("more than %d reports of progress", maxReports), "let them come less often")
	}
}

// planProgress plans the n-th report of progress before a reply that comes after rest. Each report plans the next one, if
// the attempt isn't over. With silence they end with the list, as of an agent that died.
func (s *simulation) planProgress(q *events.Request, reply *Reply, run string, n int, rest time.Duration) {
	if n > len(reply.Progress) && (reply.Silence || len(reply.Progress) == 0) || !reply.Silence && reply.Every >= rest {
		return
	}
	answer := events.Reply{Task: q.Task, Ref: q.Ref, Token: q.Token, Outcome: events.Progress, Body: reply.Progress[min(n, len(reply.Progress))-1]}
	s.planned = append(s.planned, &input{at: s.now.Add(reply.Every), inbox: events.Replies, record: answer.Record(events.DefaultNamespace, source),
		what: fmt.Sprintf("progress of attempt %d of %s", q.Ref.Attempt, run),
		then: func() { s.planProgress(q, reply, run, n+1, rest-reply.Every) }})
}
