package kafkaadmin_test

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestGroupsOfEveryKindAreKnown checks the members and the lag of each kind of group with which an agent in another
// language may read requests: classic, consumer (KIP-848) and share (KIP-932).
func TestGroupsOfEveryKindAreKnown(t *testing.T) {
	kinds := map[string][]kgo.Opt{
		"classic":  {kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())},
		"consumer": {kgo.ServerSideBalancer(), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())},
		"share":    nil,
	}
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		for kind, opts := range kinds {
			t.Run(kind, func(t *testing.T) {
				r := kafkatest.NewRequests(t, b, 1)
				admin, err := kafkaadmin.Open(r.Config)
				must(t, err)
				t.Cleanup(admin.Close)
				group := kgo.ConsumerGroup(r.Group)
				if kind == "share" {
					group = kgo.ShareGroup(r.Group)
				}
				member := b.Client(t, append(opts, group, kgo.ConsumeTopics(r.Topic), kgo.ClientID("one of "+kind))...)
				read := make(chan *kgo.Record)
				go func() {
					defer close(read)
					for r.Ctx.Err() == nil {
						for _, rec := range member.PollRecords(r.Ctx, 1).Records() {
							read <- rec
						}
					}
				}()
				first := readBy(r, read)
				r.Write(0, 0, 3) // at most one is read, because nothing receives from read
				state, err := admin.DescribeGroup(r.Ctx, r.Group)
				must(t, err)
				if state.State != "Stable" || len(state.Members) != 1 || state.Members[0].ClientID != "one of "+kind {
					t.Fatalf("%+v", state)
				}
				topic := r.Topic
				if kind == "consumer" && b.Kind == kafkatest.EmbeddedKind {
					topic = "" // kfake has only the topic's id
				}
				if got := state.Members[0].Partitions[topic]; !slices.Equal(got, []int32{0}) {
					t.Errorf("it owns %v", state.Members[0].Partitions)
				}
				if kind != "share" {
					must(t, member.CommitRecords(r.Ctx, first))
				}
				lag, err := admin.GroupLag(r.Ctx, r.Group)
				must(t, err)
				if lag[r.Topic][0] <= 0 {
					t.Errorf("the lag is %v after the first of several", lag)
				}
			})
		}
	})
}

// readBy writes records until the member has read one, and returns that. A share group begins at the end of the log, so
// a record from before isn't read.
func readBy(r *kafkatest.Requests, read <-chan *kgo.Record) *kgo.Record {
	r.T.Helper()
	for {
		select {
		case rec := <-read:
			return rec
		case <-r.Ctx.Done():
			r.T.Fatal("nothing was read")
		default:
			r.Write(0, 0, 1)
		}
	}
}

// TestLagOfTopicsThatAreNamed checks the lag of a group that never ran, which is computed from the named topics. A
// deleted topic is not an error.
func TestLagOfTopicsThatAreNamed(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := kafkatest.NewRequests(t, b, 2)
		r.Write(1, 0, 3)
		admin, err := kafkaadmin.Open(r.Config)
		must(t, err)
		t.Cleanup(admin.Close)
		lag, err := admin.GroupLag(r.Ctx, r.Group, r.Topic, r.Topic+".deleted")
		must(t, err)
		if len(lag) != 1 || lag[r.Topic][0] != 0 || lag[r.Topic][1] != 3 {
			t.Errorf("the lag is %v, want 3 in partition 1 of %s", lag, r.Topic)
		}
	})
}
