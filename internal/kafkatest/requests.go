package kafkatest

import (
	"context"
	"strconv"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/suite"
)

// Requests is a namespace with the request topic of the agent "payments".
type Requests struct {
	T        *testing.T
	Ctx      context.Context // ends after a minute
	Config   kafka.Config
	Topic    string
	Group    string
	Producer *kafka.Producer
}

// NewRequests creates the topics of a Requests on a broker.
func NewRequests(t *testing.T, b *Broker, partitions int32) *Requests {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	t.Cleanup(cancel)
	cfg := kafka.Config{Brokers: b.Addrs, Dial: b.Dial, Namespace: b.Namespace(t), ClientID: "test"}
	ns := cfg.Namespace
	r := &Requests{T: t, Ctx: ctx, Config: cfg, Topic: ns.Requests("payments"), Group: ns.AgentGroup("payments")}
	b.CreateTopics(t, partitions, r.Topic)
	b.CreateTopics(t, 1, ns.Inbox(events.Replies))
	var err error
	if r.Producer, err = kafka.OpenProducer(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Producer.Close)
	return r
}

// Write writes requests with the values [from, to) to a partition.
func (r *Requests) Write(partition int32, from, to int) {
	r.T.Helper()
	var rs []events.Record
	for i := from; i < to; i++ {
		rs = append(rs, events.Record{Topic: r.Topic, Partition: partition, Key: []byte("task"), Value: []byte(strconv.Itoa(i))})
	}
	if err := r.Producer.Send(r.Ctx, rs...); err != nil {
		r.T.Fatal(err)
	}
}
