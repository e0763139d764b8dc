package agentsession_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

const (
	stallSession = 6 * time.Second // Kafka's minimum
	// stallMost bounds how long the other members may stall after the member that blocked the group has left. They give
	// up a JoinGroup response that never comes after the rebalance timeout, which is the session timeout here, and ten
	// seconds. With the client's default of a minute the stall lasts 62 s on kfake without joinWatchdog; here it is 8
	// s, and more on a busy machine.
	stallMost = 45 * time.Second
)

// TestAMemberThatHoldsUpTheGroupIsSoonOver checks a member that sends heartbeats but doesn't join, which blocks its
// group's rebalance. The members that wait in JoinGroup must continue soon after it leaves.
func TestAMemberThatHoldsUpTheGroupIsSoonOver(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		t.Parallel()
		r := newRequests(t, b, 2)
		assigned := make(chan []int32, 100)
		s := r.open(func(c *agentsession.Config) {
			c.SessionTimeout = stallSession
			c.Listener.Assigned = func(ps []int32) { assigned <- ps }
		})
		go drainSession(r.Ctx, s)
		r.await(assigned, 0, 1)

		m := r.join()
		// The session revokes a partition and joins again. This member doesn't.
		beat, end := time.NewTicker(stallSession/20), time.After(stallSession+2*time.Second)
		defer beat.Stop()
		for over := false; !over; {
			m.heartbeat()
			select {
			case <-beat.C:
			case <-end:
				over = true
			}
		}
		r.Write(0, 0, 1)
		r.Write(1, 1, 2)
		m.leave()
		left := time.Now()
		r.awaitCommit(0, 1)
		r.awaitCommit(1, 1)
		took := time.Since(left)
		t.Logf("on went the group %s after the member had gone", took.Round(time.Millisecond))
		if took > stallMost {
			t.Errorf("the group stood still for %s after the member had gone; %s is allowed", took, stallMost)
		}
	})
}

// drainSession marks each request as done immediately.
func drainSession(ctx context.Context, s *agentsession.Session) {
	for {
		rs, err := s.Poll(ctx)
		if err != nil {
			return
		}
		for _, rec := range rs {
			s.Done(rec.Partition, rec.Offset)
		}
	}
}

// await waits until the given partitions have been assigned.
func (r *requests) await(assigned <-chan []int32, want ...int32) {
	r.T.Helper()
	var have []int32
	for !slices.Equal(have, want) {
		select {
		case ps := <-assigned:
			have = append(have, ps...)
			slices.Sort(have)
		case <-r.Ctx.Done():
			r.T.Fatalf("assigned are %d, not %d", have, want)
		}
	}
}

// member is a group member; the test sends each of its requests.
type member struct {
	r          *requests
	cl         *kgo.Client
	id         string
	generation int32
}

// join joins the group and takes part in one rebalance.
func (r *requests) join() *member {
	r.T.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.Config.Brokers...), kgo.Dialer(r.Config.Dial))
	must(r.T, err)
	r.T.Cleanup(cl.Close)
	m := &member{r: r, cl: cl}
	balancer := kgo.CooperativeStickyBalancer()
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.ProtocolType = r.Group, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(stallSession.Milliseconds()), int32(time.Minute.Milliseconds())
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = balancer.ProtocolName(), balancer.JoinGroupMetadata([]string{r.Topic}, nil, -1)
	req.Protocols = append(req.Protocols, p)
	// On a busy machine the next rebalance may begin before the sync. The member then joins that, too.
	for !m.joined(req) {
	}
	return m
}

// joined sends one JoinGroup and its SyncGroup request. It returns false if the member must join again.
func (m *member) joined(req *kmsg.JoinGroupRequest) bool {
	r := m.r
	r.T.Helper()
	resp, err := req.RequestWith(r.Ctx, m.cl)
	must(r.T, err)
	switch err := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(err, kerr.MemberIDRequired):
		req.MemberID = resp.MemberID
		return false
	case err != nil:
		r.T.Fatal(err)
	case resp.LeaderID == resp.MemberID:
		r.T.Fatal("the newcomer leads the group")
	}
	req.MemberID = resp.MemberID
	m.id, m.generation = resp.MemberID, resp.Generation
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID = r.Group, m.generation, m.id
	sync.ProtocolType, sync.Protocol = kmsg.StringPtr("consumer"), resp.Protocol
	synced, err := sync.RequestWith(r.Ctx, m.cl)
	must(r.T, err)
	err = kerr.ErrorForCode(synced.ErrorCode)
	if errors.Is(err, kerr.RebalanceInProgress) {
		return false
	}
	must(r.T, err)
	return true
}

// heartbeat sends a heartbeat, and ignores that the group rebalances.
func (m *member) heartbeat() {
	m.r.T.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = m.r.Group, m.generation, m.id
	_, err := req.RequestWith(m.r.Ctx, m.cl)
	must(m.r.T, err)
}

func (m *member) leave() {
	m.r.T.Helper()
	req := kmsg.NewPtrLeaveGroupRequest()
	who := kmsg.NewLeaveGroupRequestMember()
	who.MemberID = m.id
	req.Group, req.MemberID, req.Members = m.r.Group, m.id, append(req.Members, who)
	_, err := req.RequestWith(m.r.Ctx, m.cl)
	must(m.r.T, err)
}
