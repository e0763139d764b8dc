package doctor

import (
	"context"
	"fmt"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/text"
)

// Batches is what was observed of batches.
type Batches struct {
	Open    []*batch.View // those that haven't ended
	Senders int           // members of the group whose first one sends their commands
}

// readBatches reads the batches, and who sends their commands. A topic that is missing or has no leader is reported
// elsewhere.
func (c *Collector) readBatches(ctx context.Context, o *Observation) error {
	topic, fold := c.Namespace.Batches(), batch.NewFold()
	_, exists, err := c.Admin.TopicPartitions(ctx, topic)
	if err != nil || !exists || len(o.Leaderless[topic]) > 0 {
		return err
	}
	_, err = c.Reader.ReadAll(ctx, topic, logreader.Range{}, func(rs []events.Record) error {
		for i := range rs {
			fold.Apply(&rs[i])
		}
		return nil
	}, nil)
	for _, k := range fold.Active() {
		o.Batches.Open = append(o.Batches.Open, k.View())
	}
	if err != nil || len(o.Batches.Open) == 0 {
		return err
	}
	group, err := c.Admin.DescribeGroup(ctx, c.Namespace.BatchesGroup())
	o.Batches.Senders = len(group.Members)
	return err
}

// batchFindings judges the batches that haven't ended.
func batchFindings(o *Batches) (list []Finding) {
	waiting := 0
	for _, v := range o.Open {
		waiting += v.Counts[batch.Waiting]
	}
	open := fmt.Sprintf("%s, %s without a command yet", text.Count(len(o.Open), "open batch"), text.Count(waiting, "task"))
	switch {
	case len(o.Open) == 0:
		return nil
	case o.Senders == 0:
		return []Finding{{"batches", Fault, open + ": they wait for a console, which sends the commands", "start one: waybill console"}}
	}
	for _, v := range o.Open {
		if v.Trouble != "" {
			list = append(list, Finding{"batches", Note, v.ID + ": " + v.Trouble, "`waybill batch get " + v.ID + "` shows it"})
		}
	}
	if len(list) == 0 {
		list = append(list, Finding{"batches", OK, open, ""})
	}
	return list
}
