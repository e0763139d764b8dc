package kafka_test

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// An agent in another language may read its requests by any of Kafka's three kinds of groups:
// the classic one, the one that brokers assign (KIP-848), a share group (KIP-932). Of each it is
// known who is in it, and what is left to do.
func TestGroupsOfEveryKindAreKnown(t *testing.T) {
	kinds := map[string][]kgo.Opt{
		"classic":  {kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())},
		"consumer": {kgo.ServerSideBalancer(), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())},
		"share":    nil,
	}
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		for kind, opts := range kinds {
			t.Run(kind, func(t *testing.T) {
				r := newRequests(t, b, 1)
				admin, err := kafka.OpenAdmin(r.cfg)
				must(t, err)
				t.Cleanup(admin.Close)
				group := kgo.ConsumerGroup(r.group)
				if kind == "share" {
					group = kgo.ShareGroup(r.group)
				}
				member := b.Client(t, append(opts, group, kgo.ConsumeTopics(r.topic), kgo.ClientID("one of "+kind))...)
				read := make(chan *kgo.Record)
				go func() {
					defer close(read)
					for r.ctx.Err() == nil {
						for _, rec := range member.PollRecords(r.ctx, 1).Records() {
							read <- rec
						}
					}
				}()
				first := r.readBy(read)
				r.write(0, 0, 3) // of which at most one is taken, as nobody listens
				state, err := admin.DescribeGroup(r.ctx, r.group)
				must(t, err)
				if state.State != "Stable" || len(state.Members) != 1 || state.Members[0].ClientID != "one of "+kind {
					t.Fatalf("%+v", state)
				}
				topic := r.topic
				if kind == "consumer" && b.Kind == kafkatest.EmbeddedKind {
					topic = "" // kfake names topics by their ids alone
				}
				if got := state.Members[0].Partitions[topic]; !slices.Equal(got, []int32{0}) {
					t.Errorf("it owns %v", state.Members[0].Partitions)
				}
				if kind != "share" {
					must(t, member.CommitRecords(r.ctx, first))
				}
				lag, err := admin.GroupLag(r.ctx, r.group)
				must(t, err)
				if lag[r.topic][0] <= 0 {
					t.Errorf("the lag is %v after the first of several", lag)
				}
			})
		}
	})
}

// readBy is the first record that a member reads, of those that are written until then: a share
// group begins at the end.
func (r *requests) readBy(read <-chan *kgo.Record) *kgo.Record {
	r.t.Helper()
	for {
		select {
		case rec := <-read:
			return rec
		case <-r.ctx.Done():
			r.t.Fatal("nothing was read")
		default:
			r.write(0, 0, 1)
		}
	}
}

// What waits for a group that has never run is counted by the topics that are named; one that was
// deleted is no error.
func TestLagOfTopicsThatAreNamed(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 2)
		r.write(1, 0, 3)
		admin, err := kafka.OpenAdmin(r.cfg)
		must(t, err)
		t.Cleanup(admin.Close)
		lag, err := admin.GroupLag(r.ctx, r.group, r.topic, r.topic+".deleted")
		must(t, err)
		if len(lag) != 1 || lag[r.topic][0] != 0 || lag[r.topic][1] != 3 {
			t.Errorf("the lag is %v, want 3 in partition 1 of %s", lag, r.topic)
		}
	})
}
