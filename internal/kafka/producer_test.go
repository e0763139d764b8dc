package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

func TestProducerPlacesByKeyOrGivenPartition(t *testing.T) {
	_, cfg := fake(t, kfake.SeedTopics(7, "t"))
	p, a, ctx := openProducer(t, cfg), openAdmin(t, cfg), bounded(t)
	var rs []events.Record
	for i := range 100 {
		rs = append(rs, events.Record{Topic: "t", Partition: -1, Key: []byte(fmt.Sprint("task-", i)), Value: []byte("key"),
			Headers: []events.Header{{Key: "h", Value: []byte("v")}}})
		rs = append(rs, events.Record{Topic: "t", Partition: int32(i % 7), Key: []byte(fmt.Sprint("task-", i)), Value: []byte("told")})
	}
	must(t, p.Send(ctx, rs...))
	told, keyed := 0, 0
	must(t, a.ReadCompacted(ctx, "t", func(r events.Record) error {
		var i int
		if _, err := fmt.Sscanf(string(r.Key), "task-%d", &i); err != nil {
			return err
		}
		want := int32(i % 7)
		if string(r.Value) == "key" {
			want = events.Partition(r.Key, 7)
			keyed++
			if h, _ := r.Header("h"); h != "v" {
				t.Errorf("%s lost its header", r.Key)
			}
		} else {
			told++
		}
		if r.Partition != want {
			t.Errorf("%s by %s is in partition %d, want %d", r.Key, r.Value, r.Partition, want)
		}
		return nil
	}))
	if told != 100 || keyed != 100 {
		t.Errorf("%d and %d records", told, keyed)
	}
	if err := p.Send(ctx, events.Record{Topic: "t", Partition: 7, Value: []byte("x")}); err == nil {
		t.Error("a partition that isn't there was written to")
	}
}

func TestAMissingTopicFailsSoonAndStopsNoOther(t *testing.T) {
	_, cfg := fake(t, kfake.SeedTopics(1, "there"))
	p, ctx := openProducer(t, cfg), bounded(t)
	must(t, p.Send(ctx, events.Record{Topic: "there", Value: []byte("x")}))
	for try := range 3 {
		start := time.Now()
		missing := make(chan error, 1)
		p.SendAsync(ctx, events.Record{Topic: "missing", Value: []byte("x")}, func(_ events.Record, err error) { missing <- err })
		must(t, p.Send(ctx, events.Record{Topic: "there", Value: []byte("x")}))
		there := time.Since(start)
		err := <-missing
		if !errors.Is(err, kafka.ErrNoTopic) {
			t.Errorf("got %v", err)
		}
		t.Logf("try %d: the other after %v, the missing one after %v", try, there, time.Since(start))
		if time.Since(start) > 15*time.Second {
			t.Errorf("try %d took %v", try, time.Since(start))
		}
	}
}

// TestMoreThanTheBufferHoldsWaitsForRoom checks sends beyond the buffer. The client removes a record from its buffer
// only after the record's callback, and the callback starts the next send.
func TestMoreThanTheBufferHoldsWaitsForRoom(t *testing.T) {
	_, cfg := fake(t, kfake.SeedTopics(4, "t"))
	p, ctx := openProducer(t, cfg), bounded(t)
	rs := make([]events.Record, 20*kafka.ProducerBufferRecords)
	for i := range rs {
		rs[i] = events.Record{Topic: "t", Partition: int32(i % 4), Value: []byte("x")}
	}
	must(t, p.Send(ctx, rs...))
}

func TestDeliveryIsBoundedWhenTheBrokerKeepsRefusing(t *testing.T) {
	c, cfg := fake(t, kfake.SeedTopics(1, "t"))
	p, err := kafka.OpenProducerWithin(cfg, time.Second)
	must(t, err)
	t.Cleanup(p.Close)
	ctx := bounded(t)
	var refused atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		refused.Add(1)
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range req.(*kmsg.ProduceRequest).Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			sp := kmsg.NewProduceResponseTopicPartition()
			sp.ErrorCode = kerr.NotEnoughReplicas.Code
			st.Partitions = append(st.Partitions, sp)
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	start := time.Now()
	if err := p.Send(ctx, events.Record{Topic: "t", Value: []byte("x")}); err == nil || ctx.Err() != nil {
		t.Errorf("got %v, context %v", err, ctx.Err())
	}
	if d := time.Since(start); d > 10*time.Second || refused.Load() == 0 {
		t.Errorf("gave up after %v and %d refusals", d, refused.Load())
	}
}

func TestSendReturnsWithItsContext(t *testing.T) {
	p := openProducer(t, kafka.Config{Brokers: []string{"127.0.0.1:1"}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Send(ctx, events.Record{Topic: "t", Value: []byte("x")}) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := kafka.OpenProducerWithin(kafka.Config{}, time.Millisecond); err == nil {
		t.Error("a delivery timeout of 1ms was accepted")
	}
}
