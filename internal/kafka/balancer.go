package kafka

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
)

// protocolName is what the members of a group agree on. Another placement
// rule needs another name.
const protocolName = "waybill-copartitioned"

// Balancer is a group balancer, sticky and cooperative, that places partition
// numbers and mirrors them over all topics that a member reads: partition p of
// each belongs to one member. kgo's own cooperative-sticky balancer places
// topic-partitions and tears co-partitioned topics apart.
//
// Where somebody has added partitions to an inbox, records are written to them by
// the keys' hash. With them (includeAdded) partition p goes together with p+n, p+2n and
// so on of each topic that has them, n being the number there should be.
//
// It also knows what its member owns. Callbacks of the client do not: a
// GroupTransactSession swallows some. What counts is what ParseSyncAssignment
// returned last, less what the client no longer names when it joins again
// (it was lost: session expired, coordinator gone), each with a number that
// changes whenever the partition comes anew.
//
// One Balancer serves one client. It must be given to the client both as
// kgo.Balancers and among kgo.WithHooks. All methods may be called from any
// goroutine.
type Balancer struct {
	partitions   int32
	includeAdded bool   // partitions that were added to a topic
	owner        string // who the member is, for those who look at the group

	// onAdded is called for partitions that come anew, under the balancer's
	// lock, before the client can fetch any of them. A partition with which another
	// comes that was added to a topic comes anew.
	onAdded func(client *kgo.Client, added []int32)
	// onChanged is called after an assignment was taken over.
	onChanged func(added, lost []int32)
	// onError is called with what ended a group session.
	onError func(error)
	// onSubscriptionMismatch is called on the leader for a member whose topics are not
	// those of the first member.
	onSubscriptionMismatch func(member string, topics []string)

	mu      sync.Mutex
	client  *kgo.Client
	member  string // member id at the last assignment
	joining bool   // it has asked to join since: its id may be another by now
	// fencedSince is since when the group says that another has its instance's name; zero: it was taken since.
	fencedSince    time.Time
	lastAssignment uint64 // number given last
	// owned is replaced, never changed, so that it can be handed out.
	owned map[int32]uint64
	// beside are partitions that were added to topics, by the owned one that they go
	// together with; sorted.
	addedWith map[int32][]topicPartition
	// given is what this leader gave to each instance id, for static members
	// that come back without memory.
	lastPlan map[string][]int32
}

// NewBalancer places the partition numbers [0, partitions).
func NewBalancer(partitions int32) *Balancer {
	return &Balancer{
		partitions:             partitions,
		onAdded:                func(*kgo.Client, []int32) {},
		onChanged:              func(_, _ []int32) {},
		onError:                func(error) {},
		onSubscriptionMismatch: func(string, []string) {},
		owned:                  map[int32]uint64{},
		lastPlan:               map[string][]int32{},
	}
}

// observe sets the hooks that are not nil. It is called before the client is
// opened.
func (b *Balancer) setHooks(changed func(added, lost []int32), failed func(error), uneven func(string, []string)) {
	if changed != nil {
		b.onChanged = changed
	}
	if failed != nil {
		b.onError = failed
	}
	if uneven != nil {
		b.onSubscriptionMismatch = uneven
	}
}

var (
	_ kgo.GroupBalancer           = (*Balancer)(nil)
	_ kgo.HookNewClient           = (*Balancer)(nil)
	_ kgo.HookGroupManageError    = (*Balancer)(nil)
	_ kgo.ConsumerBalancerBalance = (*Balancer)(nil)
)

// Assigned is what the member owns now: partition -> a number that is another
// one whenever the partition was assigned after not having been owned. The
// map must not be changed.
func (b *Balancer) Assigned() map[int32]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.owned
}

// ownAll has a reader without a group own all partitions.
func (b *Balancer) ownAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	owned := map[int32]uint64{}
	for p := range b.partitions {
		owned[p] = 1
	}
	b.owned = owned
}

// memberOf is the member's id at the last assignment, and whether it owns p.
func (b *Balancer) memberOf(p int32) (id string, owns bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, owns = b.owned[p]
	return b.member, owns
}

// whileOwned calls fn while p has the number n, so that it can't be lost or
// come anew meanwhile; it reports whether it did. fn must not call b.
func (b *Balancer) whileOwned(p int32, n uint64, fn func(*kgo.Client)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if have, ok := b.owned[p]; !ok || have != n {
		return false
	}
	fn(b.client)
	return true
}

// withClient calls fn with the client, which is there before it joins.
func (b *Balancer) withClient(fn func(*kgo.Client)) {
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

// OnGroupManageError is a kgo hook: the client has lost everything and joins
// again.
func (b *Balancer) OnGroupManageError(err error) {
	b.retainOwned(nil)
	b.mu.Lock()
	if b.fencedSince.IsZero() && errors.Is(err, kerr.FencedInstanceID) {
		b.fencedSince = time.Now()
	}
	b.mu.Unlock()
	b.onError(err)
}

// standing is the member's id at the last assignment, whether it is joining anew, and since when the
// group says, without having taken it meanwhile, that another has its name; zero: it doesn't.
func (b *Balancer) memberState() (member string, joins bool, fencedSince time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.member, b.joining, b.fencedSince
}

// duplicate is the error of a member that another process has put out of the group; nil: it isn't known to be.
func (b *Balancer) duplicate(client *kgo.Client, group, instance string, session time.Duration, err error) error {
	member, _, since := b.memberState()
	if since.IsZero() || time.Since(since) <= duplicateAfter(session) {
		return nil
	}
	return duplicateOf(client, group, instance, member, err)
}

// ProtocolName is part of kgo.GroupBalancer.
func (b *Balancer) ProtocolName() string { return protocolName }

// IsCooperative is part of kgo.GroupBalancer.
func (b *Balancer) IsCooperative() bool { return true }

// JoinGroupMetadata is part of kgo.GroupBalancer. What current does not name
// any more was lost.
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
	meta.UserData = []byte(b.owner)
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

// numbers are the partitions of any topic, and which others go together with them.
func (b *Balancer) partitionNumbers(assigned map[string][]int32) (set map[int32]bool, beside map[int32][]topicPartition) {
	set, beside = map[int32]bool{}, map[int32][]topicPartition{}
	for _, topic := range slices.Sorted(maps.Keys(assigned)) {
		for _, p := range slices.Sorted(slices.Values(assigned[topic])) {
			home := p % b.partitions
			set[home] = true
			if p != home {
				beside[home] = append(beside[home], topicPartition{topic, p})
			}
		}
	}
	return set, beside
}

// flow are partitions of topics, with what goes together with them. The caller holds
// the lock, as onAdded and whileOwned have it.
func (b *Balancer) withAddedPartitions(topics []string, ps ...int32) map[string][]int32 {
	flow := make(map[string][]int32, len(topics))
	for _, topic := range topics {
		flow[topic] = ps
		for _, p := range ps {
			for _, at := range b.addedWith[p] {
				if at.topic == topic {
					flow[topic] = append(slices.Clip(flow[topic]), at.partition)
				}
			}
		}
	}
	return flow
}

// ParseSyncAssignment is part of kgo.GroupBalancer: it takes over what the
// leader gave this member.
//
// It fails if the member has got another id while it held partitions: the
// coordinator had forgotten it, so others may have owned them meanwhile, yet
// the client would go on fetching from where it was (joining with an unknown
// id it starts again without calling anything lost). An error makes the client
// drop everything and join from nothing.
func (b *Balancer) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	assigned, err := kgo.ParseConsumerSyncAssignment(assignment)
	if err != nil {
		return nil, fmt.Errorf("assignment of the group's leader can't be read: %w", err)
	}
	added, lost, err := b.acceptAssignment(b.partitionNumbers(assigned))
	if err != nil {
		return nil, err
	}
	b.onChanged(added, lost)
	return assigned, nil
}

func (b *Balancer) acceptAssignment(now map[int32]bool, beside map[int32][]topicPartition) (added, lost []int32, err error) {
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
		return nil, nil, fmt.Errorf("member %s was forgotten by the group and is now %s: it gives up partitions %v", before, b.member, lost)
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
		b.onAdded(b.client, added)
	}
	b.owned = owned
	return added, lost, nil
}

// MemberBalancer is part of kgo.GroupBalancer.
func (b *Balancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	cb, err := kgo.NewConsumerBalancer(b, members)
	if err != nil {
		return nil, nil, fmt.Errorf("a member of the group sent metadata that can't be read: %w", err)
	}
	return cb, cb.MemberTopics(), nil
}

// Balance is part of kgo.ConsumerBalancerBalance: it encodes what place
// decides. A member that reads other topics than the rest (an old binary
// during an upgrade) gets its partitions of the topics that it reads; failing
// would stop the whole group for one member's sake.
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

// mirror gives m its partition numbers of each of its topics that has them, and what
// was added to a topic with them.
func (b *Balancer) addToPlan(plan *kgo.BalancePlan, m *kmsg.JoinGroupResponseMember, topics []string, counts map[string]int32, ps []int32) {
	for _, topic := range topics {
		for _, p := range ps {
			for ; p < counts[topic]; p += b.partitions {
				plan.AddPartition(m, topic, p)
				if !b.includeAdded {
					break
				}
			}
		}
	}
}
