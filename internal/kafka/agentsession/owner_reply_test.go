package agentsession_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// ownersReplies is two sessions of a group with two partitions. The broker answers each produce request only after a
// value of proceed. The second session joins while the first one sends.
type ownersReplies struct {
	*requests
	b       *kafkatest.Broker
	first   *agentsession.Session
	proceed chan struct{}
	moved   chan int32 // partitions of the second session
}

// commitsWhenRevoked ends commits at intervals. One during a rebalance waits for a lock of the client, which stops the
// time of a bubble.
func commitsWhenRevoked(c *agentsession.Config) { c.CommitEvery = 24 * time.Hour }

func newOwnersReplies(t *testing.T) *ownersReplies {
	b := kafkatest.Virtual(t)
	o := &ownersReplies{newRequests(t, b, 2), b, nil, make(chan struct{}), make(chan int32, 10)}
	o.first = o.open(commitsWhenRevoked)
	o.Write(0, 0, 1)
	o.Write(1, 0, 1)
	o.poll(o.first, 2)
	b.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		b.Fake.KeepControl()
		b.Fake.SleepControl(func() { <-o.proceed })
		return nil, nil, false
	})
	return o
}

func (o *ownersReplies) reply(value string) events.Record {
	return events.Record{Topic: o.Config.Namespace.Inbox(events.Replies), Partition: -1, Key: []byte("task"), Value: []byte(value)}
}

// send sends a reply of any instance, and then a reply of the owner of each partition.
func (o *ownersReplies) send() (anyones chan error, owners []chan error) {
	anyones = make(chan error, 1)
	go func() { anyones <- o.first.Send(o.Ctx, o.reply("any")) }()
	synctest.Wait()
	for p, value := range []string{"zero", "one"} {
		result := make(chan error, 1)
		owners = append(owners, result)
		go func() { result <- o.first.SendAsOwner(o.Ctx, int32(p), 0, o.reply(value)) }()
	}
	synctest.Wait()
	return anyones, owners
}

func (o *ownersReplies) join() (second *agentsession.Session) {
	return o.open(commitsWhenRevoked, func(c *agentsession.Config) {
		c.Listener.Assigned = func(ps []int32) {
			for _, p := range ps {
				o.moved <- p
			}
		}
	})
}

func (o *ownersReplies) written() []string {
	site := &kafkatest.Site{Broker: o.b, Config: o.Config, NS: o.Config.Namespace}
	return site.Values(o.T, o.Config.Namespace.Inbox(events.Replies))
}

// TestOwnersReplyThatWaitsIsWithdrawn checks a reply of SendAsOwner that waits for a flight when its partition is
// revoked. It is never written. Replies of partitions that stay are.
func TestOwnersReplyThatWaitsIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwnersReplies(t)
		anyones, owners := o.send()
		o.join()
		p := <-o.moved
		if err := <-owners[p]; !errors.Is(err, agentsession.ErrPartitionLost) {
			t.Errorf("the reply of a partition that moved: %v", err)
		}
		if err := o.first.SendAsOwner(o.Ctx, p, 0, o.reply("late")); !errors.Is(err, agentsession.ErrPartitionLost) {
			t.Errorf("a reply after its partition moved: %v", err)
		}
		close(o.proceed)
		must(t, <-anyones)
		must(t, <-owners[1-p])
		if want := []string{"any", []string{"zero", "one"}[1-p]}; !slices.Equal(o.written(), want) {
			t.Errorf("written: %q, want %q", o.written(), want)
		}
	})
}

// TestOwnersReplyInFlightIsAwaited checks a reply of SendAsOwner that is in flight when its partition is revoked. The
// partition moves after the reply is acknowledged, and the next owner doesn't get its request.
func TestOwnersReplyInFlightIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwnersReplies(t)
		anyones, owners := o.send()
		o.proceed <- struct{}{}
		must(t, <-anyones)
		synctest.Wait() // both replies of owners are in flight
		second := o.join()
		var p int32
		select {
		case <-o.first.HeldContext(0).Done():
		case <-o.first.HeldContext(1).Done():
			p = 1
		}
		ctx, cancel := context.WithTimeout(o.Ctx, time.Second)
		defer cancel()
		select {
		case <-o.moved:
			t.Error("the partition moved before its reply was acknowledged")
		case <-ctx.Done():
		}
		close(o.proceed)
		must(t, <-owners[0])
		must(t, <-owners[1])
		o.Write(p, 5, 6)
		if got := o.poll(second, 1); !slices.Equal(got, []string{"5"}) {
			t.Errorf("the next owner got %q", got)
		}
	})
}

// TestOwnersReplyInFlightIsAwaitedForABound checks that a broker that doesn't answer delays a revocation by a bound.
func TestOwnersReplyInFlightIsAwaitedForABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwnersReplies(t)
		anyones, owners := o.send()
		o.proceed <- struct{}{}
		must(t, <-anyones)
		synctest.Wait()
		began := time.Now()
		o.join()
		<-o.moved
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("the partition moved after %v", took)
		}
		close(o.proceed)
		must(t, <-owners[0])
		must(t, <-owners[1])
	})
}
