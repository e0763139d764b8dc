package agentsession

import (
	"context"
	"fmt"
	"strings"

	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// An agent's circuit breakers are in its process, but their state must be visible from other processes. So each commit
// carries the state in its metadata, after the finished ranges. Any process that may read the group's offsets can read
// it, and no topic is needed.
const (
	circuitMark = ";circuit="
	// circuitMaxBytes is the space that commit metadata reserves for it, including the mark.
	circuitMaxBytes = 32
)

// topicMark precedes the id of the topic that a commit belongs to. A topic that was deleted and created again has
// another id and other offsets.
const (
	topicMark     = ";topic="
	topicMaxBytes = 32 // including the mark
)

// withTopic adds a topic id to a tracker's metadata. An empty id adds nothing.
func withTopic(metadata, id string) string {
	if id == "" {
		return metadata
	}
	if metadata == "" {
		metadata = metadataVersion
	}
	return metadata + topicMark + id
}

// topicIn returns the topic id in a commit's metadata; empty: there is none.
func topicIn(metadata string) string {
	if !strings.HasPrefix(metadata, metadataVersion) {
		return ""
	}
	_, rest, _ := strings.Cut(metadata, topicMark)
	id, _, _ := strings.Cut(rest, ";")
	return id
}

// withCircuit adds a circuit state to a tracker's metadata. It adds nothing if the state is empty or too long.
func withCircuit(metadata, state string) string {
	if state == "" || len(circuitMark)+len(state) > circuitMaxBytes {
		return metadata
	}
	if metadata == "" {
		metadata = metadataVersion
	}
	return metadata + circuitMark + state
}

// circuitIn returns the circuit state in a commit's metadata; empty: there is none.
func circuitIn(metadata string) string {
	if !strings.HasPrefix(metadata, metadataVersion) {
		return ""
	}
	_, state, _ := strings.Cut(metadata, circuitMark)
	return state
}

// ReportCircuit sets the state of the agent's circuits, which the next commits publish, and requests a commit. It
// returns at once. A partition that no record was ever read from has no commit, so it publishes nothing.
func (s *Session) ReportCircuit(state string) {
	s.mu.Lock()
	s.circuit = state
	s.mu.Unlock()
	s.CommitSoon()
}

// Circuits returns the circuit states that the members of an agent's group published last, by partition of the topic.
// Partitions without a state are left out. A state may come from a dead member: callers must use only partitions that a
// live member owns.
func Circuits(ctx context.Context, a *kafkaadmin.Admin, group, topic string) (map[int32]string, error) {
	commits, err := a.CommittedOffsets(ctx, group)
	if kafkaadmin.NoSuchGroup(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("commits of group %s: %w", group, err)
	}
	circuits := map[int32]string{}
	for p, c := range commits[topic] {
		if state := circuitIn(c.Metadata); state != "" {
			circuits[p] = state
		}
	}
	return circuits, nil
}
