package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// taskOrigin is what started a task, other than an application.
type taskOrigin struct {
	Intake  *events.IntakeView `json:"intake"`
	Parent  *events.ParentView `json:"parent"`
	ReplyTo string             `json:"reply_to"`
}

// originOfLine returns the origin of the task whose first event a line is; of other lines it is empty.
func originOfLine(l *events.Line) (o taskOrigin) {
	var received struct {
		taskOrigin
		Intake *events.IntakeRef `json:"intake"`
	}
	if shortType(l.Type) != "task.received" || json.Unmarshal(l.Data, &received) != nil {
		return o
	}
	o = received.taskOrigin
	if r := received.Intake; r != nil {
		o.Intake = &events.IntakeView{Name: r.Name, Topic: r.Topic, Partition: r.Partition, Offset: fmt.Sprint(r.Offset)}
	}
	return o
}

// rows returns the names and texts of what started the task with an id; none: an application did.
func (o *taskOrigin) rows(id string) (rows [][2]string) {
	if p := o.Parent; p != nil {
		item := ""
		if p.Item != nil {
			item = fmt.Sprintf(", item %d", *p.Item)
		}
		rows = append(rows, [2]string{"Child of", p.Task + ", step " + p.Step + item})
	}
	if r := o.Intake; r != nil {
		rows = append(rows, [2]string{"Intake", fmt.Sprintf("%s, record %s/%d/%s", r.Name, r.Topic, r.Partition, r.Offset)})
	}
	if name, instant, is := scheduleOf(id, o.ReplyTo); is {
		rows = append(rows, [2]string{"Schedule", name + ", instant " + instant})
	}
	return rows
}

// scheduleOf returns the schedule that started a task, and its instant. Such a task reports to the topic of schedules, and
// its id has both.
func scheduleOf(id, replyTo string) (name, instant string, is bool) {
	name, at, is := events.ParseScheduledTask(id)
	if !is || !strings.HasSuffix(replyTo, events.Namespace("").Schedules()) {
		return "", "", false
	}
	return name, at.UTC().Format(time.RFC3339), true
}
