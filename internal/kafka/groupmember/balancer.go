package groupmember

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka"
)

// ProtocolName is the assignment protocol that the members of a group agree on. A change of the
// placement rule needs a new name.
const ProtocolName = "waybill-copartitioned"

// Balancer is a group balancer, sticky and cooperative, that places partition
// numbers and mirrors them over all topics that a member reads: partition p of
// each belongs to one member. kgo's own cooperative-sticky balancer assigns each
// topic-partition independently, so co-partitioned topics would be split among members.
//
// If an operator adds partitions to an inbox, producers write records to them by key hash. With
// IncludeAdded the owner of partition p also gets p+n, p+2n and so on of each topic that has them;
// n is the planned partition count.
//
// It also records what its member owns. The client's callbacks are no source for that: a
// GroupTransactSession swallows some. The member owns the last result of ParseSyncAssignment, without the
// partitions that the client no longer names when it joins again (they were lost: session expired,
// coordinator unavailable). Each has an assignment number, which changes whenever the partition is assigned again.
//
// One Balancer serves one client. It must be given to the client both as
// kgo.Balancers and among kgo.WithHooks. All methods may be called from any
// goroutine.
type Balancer struct {
	partitions   int32
	IncludeAdded bool   // assign partitions that were added to a topic
	Owner        string // the member's name as an owner, shown to readers of the group

	// OnAdded is called with newly assigned partitions, under the balancer's lock, before the client can
	// fetch any of them. A partition counts as newly assigned if the added partitions that belong to it change.
	OnAdded func(client *kgo.Client, added []int32)
	// onChanged is called after an assignment was accepted.
	onChanged func(added, lost []int32)
	// onError is called with the error that ended a group session.
	onError func(error)
	// onSubscriptionMismatch is called on the leader for a member whose topics differ from those of the
	// first member.
	onSubscriptionMismatch func(member string, topics []string)

	mu      sync.Mutex
	client  *kgo.Client
	member  string // member id at the last assignment
	joining bool   // it has sent a join request since; its id may have changed
	// fencedSince is when the coordinator first answered FENCED_INSTANCE_ID; zero: it hasn't since the last assignment.
	fencedSince    time.Time
	lastAssignment uint64 // the highest assignment number
	// owned maps partitions to assignment numbers. It is replaced, never modified, so it can be returned.
	owned map[int32]uint64
	// addedWith are the partitions that were added to topics, by the owned partition they belong to; sorted.
	addedWith map[int32][]kafka.TopicPartition
	// lastPlan is what this leader assigned to each instance id: a static member that restarts doesn't
	// know what it had.
	lastPlan map[string][]int32
}

// NewBalancer places the partition numbers [0, partitions).
func NewBalancer(partitions int32) *Balancer {
	return &Balancer{
		partitions:             partitions,
		OnAdded:                func(*kgo.Client, []int32) {},
		onChanged:              func(_, _ []int32) {},
		onError:                func(error) {},
		onSubscriptionMismatch: func(string, []string) {},
		owned:                  map[int32]uint64{},
		lastPlan:               map[string][]int32{},
	}
}

// SetHooks sets the hooks. Call it before the client is opened.
func (b *Balancer) SetHooks(changed func(added, lost []int32), failed func(error), mismatch func(string, []string)) {
	b.onChanged, b.onError, b.onSubscriptionMismatch = changed, failed, mismatch
}

var (
	_ kgo.GroupBalancer           = (*Balancer)(nil)
	_ kgo.HookNewClient           = (*Balancer)(nil)
	_ kgo.HookGroupManageError    = (*Balancer)(nil)
	_ kgo.ConsumerBalancerBalance = (*Balancer)(nil)
)

// Assigned returns what the member owns: partition -> assignment number. The number changes whenever
// the partition is assigned again after it was not owned. The map must not be modified.
func (b *Balancer) Assigned() map[int32]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.owned
}

// OwnAll makes a member without a group the owner of all partitions.
func (b *Balancer) OwnAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	owned := map[int32]uint64{}
	for p := range b.partitions {
		owned[p] = 1
	}
	b.owned = owned
}

// MemberOf returns the member's id at the last assignment, and whether it owns p.
func (b *Balancer) MemberOf(p int32) (id string, owns bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, owns = b.owned[p]
	return b.member, owns
}

// whileOwned calls fn if p still has assignment number n, and reports whether it did. The assignment can't
// change during the call. fn must not call b.
func (b *Balancer) whileOwned(p int32, n uint64, fn func(*kgo.Client)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if have, ok := b.owned[p]; !ok || have != n {
		return false
	}
	fn(b.client)
	return true
}

// WithClient calls fn with the client under the lock. The client is set before it joins.
func (b *Balancer) WithClient(fn func(*kgo.Client)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fn(b.client)
}

// OnNewClient is a kgo hook.
func (b *Balancer) OnNewClient(client *kgo.Client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.client = client
}

// OnGroupManageError is a kgo hook: the client has lost all partitions and joins again.
func (b *Balancer) OnGroupManageError(err error) {
	b.retainOwned(nil)
	b.mu.Lock()
	if b.fencedSince.IsZero() && errors.Is(err, kerr.FencedInstanceID) {
		b.fencedSince = time.Now()
	}
	b.mu.Unlock()
	b.onError(err)
}

// MemberState returns the member's id at the last assignment, whether it is joining again, and since when the
// coordinator has answered FENCED_INSTANCE_ID without an assignment in between; zero: it hasn't.
func (b *Balancer) MemberState() (member string, joins bool, fencedSince time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.member, b.joining, b.fencedSince
}

// Duplicate returns the error of a member whose instance id another process has taken; nil: that isn't established.
func (b *Balancer) Duplicate(client *kgo.Client, group, instance string, session time.Duration, err error) error {
	member, _, since := b.MemberState()
	if since.IsZero() || time.Since(since) <= DuplicateAfter(session) {
		return nil
	}
	return FindDuplicate(client, group, instance, member, err)
}

// ProtocolName is part of kgo.GroupBalancer.
func (b *Balancer) ProtocolName() string { return ProtocolName }

// IsCooperative is part of kgo.GroupBalancer.
func (b *Balancer) IsCooperative() bool { return true }

// JoinGroupMetadata is part of kgo.GroupBalancer. Partitions that current doesn't name were lost.
func (b *Balancer) JoinGroupMetadata(topics []string, current map[string][]int32, generation int32) []byte {
	still, _ := b.partitionNumbers(current)
	b.retainOwned(still)
	b.mu.Lock()
	b.joining = true
	b.mu.Unlock()
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version = 3
	meta.Topics = topics
	meta.Generation = generation
	meta.UserData = []byte(b.Owner)
	for _, topic := range slices.Sorted(maps.Keys(current)) {
		owned := kmsg.NewConsumerMemberMetadataOwnedPartition()
		owned.Topic, owned.Partitions = topic, current[topic]
		meta.OwnedPartitions = append(meta.OwnedPartitions, owned)
	}
	return meta.AppendTo(nil)
}

func (b *Balancer) retainOwned(still map[int32]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := make(map[int32]uint64, len(b.owned))
	for p, n := range b.owned {
		if still[p] {
			kept[p] = n
		}
	}
	b.owned = kept
}

// partitionNumbers returns the owned numbers of any topic, and the added partitions that belong to each.
func (b *Balancer) partitionNumbers(assigned map[string][]int32) (set map[int32]bool, beside map[int32][]kafka.TopicPartition) {
	set, beside = map[int32]bool{}, map[int32][]kafka.TopicPartition{}
	for _, topic := range slices.Sorted(maps.Keys(assigned)) {
		for _, p := range slices.Sorted(slices.Values(assigned[topic])) {
			home := p % b.partitions
			set[home] = true
			if p != home {
				beside[home] = append(beside[home], kafka.TopicPartition{Topic: topic, Partition: p})
			}
		}
	}
	return set, beside
}

// withAddedPartitions returns partitions by topic, with the added ones that belong to them. The caller holds
// the lock, as OnAdded and whileOwned do.
func (b *Balancer) withAddedPartitions(topics []string, ps ...int32) map[string][]int32 {
	flow := make(map[string][]int32, len(topics))
	for _, topic := range topics {
		flow[topic] = ps
		for _, p := range ps {
			for _, at := range b.addedWith[p] {
				if at.Topic == topic {
					flow[topic] = append(slices.Clip(flow[topic]), at.Partition)
				}
			}
		}
	}
	return flow
}

// ParseSyncAssignment is part of kgo.GroupBalancer: it accepts the leader's assignment for this member.
//
// It fails if the member's id changed while it held partitions. The coordinator had forgotten the member, so
// others may have owned the partitions meanwhile; but the client would continue at its old positions, because
// it reports nothing as lost when it joins with an unknown id. The error makes the client drop all
// partitions and join again.
func (b *Balancer) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	assigned, err := kgo.ParseConsumerSyncAssignment(assignment)
	if err != nil {
		return nil, fmt.Errorf("the group leader's assignment can't be decoded: %w", err)
	}
	added, lost, err := b.acceptAssignment(b.partitionNumbers(assigned))
	if err != nil {
		return nil, err
	}
	b.onChanged(added, lost)
	return assigned, nil
}

func (b *Balancer) acceptAssignment(now map[int32]bool, beside map[int32][]kafka.TopicPartition) (added, lost []int32, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.member
	b.joining, b.fencedSince = false, time.Time{}
	if b.client != nil {
		b.member, _ = b.client.GroupMetadata()
	}
	if before != b.member && len(b.owned) > 0 {
		lost := slices.Sorted(maps.Keys(b.owned))
		b.owned = map[int32]uint64{}
		return nil, nil, fmt.Errorf("the group forgot member %s, which is now %s: it gives up partitions %v", before, b.member, lost)
	}
	owned := make(map[int32]uint64, len(now))
	for p := range now {
		if n, ok := b.owned[p]; ok && slices.Equal(b.addedWith[p], beside[p]) {
			owned[p] = n
			continue
		}
		b.lastAssignment++
		owned[p] = b.lastAssignment
		added = append(added, p)
	}
	for p := range b.owned {
		if !now[p] {
			lost = append(lost, p)
		}
	}
	slices.Sort(added)
	slices.Sort(lost)
	b.addedWith = beside
	if len(added) > 0 {
		b.OnAdded(b.client, added)
	}
	b.owned = owned
	return added, lost, nil
}

// MemberBalancer is part of kgo.GroupBalancer.
func (b *Balancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	cb, err := kgo.NewConsumerBalancer(b, members)
	if err != nil {
		return nil, nil, fmt.Errorf("a member of the group sent metadata that can't be decoded: %w", err)
	}
	return cb, cb.MemberTopics(), nil
}

// Balance is part of kgo.ConsumerBalancerBalance: it encodes the result of planPartitions. A member with another
// subscription (an old binary during an upgrade) gets its partitions of the topics that it reads: an error would
// stop the whole group because of one member.
func (b *Balancer) Balance(cb *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	claimants, first := make([]memberClaim, 0, len(cb.Members())), []string(nil)
	b.mu.Lock()
	cb.EachMember(func(m *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		c := memberClaim{generation: meta.Generation}
		owned := map[int32]bool{}
		for _, t := range meta.OwnedPartitions {
			for _, p := range t.Partitions {
				owned[p%b.partitions] = true
			}
		}
		c.owned = slices.Sorted(maps.Keys(owned))
		if m.InstanceID != nil {
			c.previous = b.lastPlan[*m.InstanceID]
		}
		claimants = append(claimants, c)
	})
	b.mu.Unlock()

	now, withheld := planPartitions(claimants, b.partitions)
	plan := cb.NewPlan()
	given := map[string][]int32{}
	for i, ps := range now {
		m, meta := cb.MemberAt(i)
		if first == nil {
			first = meta.Topics
		} else if !slices.Equal(first, meta.Topics) {
			b.onSubscriptionMismatch(m.MemberID, meta.Topics)
		}
		b.addToPlan(plan, m, meta.Topics, topics, ps)
		if m.InstanceID != nil {
			given[*m.InstanceID] = ps
		}
	}
	if withheld == 0 {
		b.mu.Lock()
		b.lastPlan = given
		b.mu.Unlock()
	}
	return plan
}

// addToPlan assigns m its partition numbers in each of its topics, and the added partitions that belong to them.
func (b *Balancer) addToPlan(plan *kgo.BalancePlan, m *kmsg.JoinGroupResponseMember, topics []string, counts map[string]int32, ps []int32) {
	for _, topic := range topics {
		for _, p := range ps {
			for ; p < counts[topic]; p += b.partitions {
				plan.AddPartition(m, topic, p)
				if !b.IncludeAdded {
					break
				}
			}
		}
	}
}
