package workflowtest

import (
	"github.com/goccy/go-yaml/ast"

	"github.com/waybill-run/waybill/events"
)

// signalFields are the fields of a signal besides its moment. They are those of the record on waybill.signals.
var signalFields = []string{"name", "data", "id", "by"}

func (c *Case) readSignals(r *reader, n ast.Node) {
	c.actions = append(c.actions, r.actionsOf(n, "signal", signalFields, func(a *action, v ast.Node, fields []member) {
		s := events.Signal{By: "tester"}
		for _, m := range fields {
			switch m.name {
			case "name":
				s.Name = r.textOf(m.value, "name")
			case "data":
				s.Data = r.jsonOf(m.value)
			case "id":
				s.ID = r.textOf(m.value, "id")
			case "by":
				s.By = r.textOf(m.value, "by")
			}
		}
		a.what, a.inbox = "signal "+s.Name, events.Signals
		a.input = func(task, id string) events.Record {
			sent := s
			if sent.Task = task; sent.ID == "" {
				sent.ID = id
			}
			return sent.Record(events.DefaultNamespace, source)
		}
		r.checkAction(a, v, "write its name, as in {at: 1h, name: approved, data: {yes: true}}")
	})...)
}
