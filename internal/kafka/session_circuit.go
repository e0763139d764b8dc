package kafka

import (
	"context"
	"fmt"
	"strings"
)

// An agent's circuits are in its process, and who looks at the agent is in another: so each
// commit says in its metadata, behind what is finished, how they are. Whoever may read the
// group's offsets for its lag can then see it, and no topic has to carry it.
const (
	circuitMark = ";circuit="
	// circuitMaxBytes is what the metadata of a commit has room for, the mark included.
	circuitMaxBytes = 32
)

// topicMark is before the id of the topic that a commit is of: one that was deleted and created again
// has another, and offsets of its own.
const (
	topicMark     = ";topic="
	topicMaxBytes = 32 // the mark included
)

// withTopic adds the id of a topic to metadata of a tracker; an empty one, nothing.
func withTopic(metadata, id string) string {
	if id == "" {
		return metadata
	}
	if metadata == "" {
		metadata = metadataVersion
	}
	return metadata + topicMark + id
}

// topicIn is the id in the metadata of a commit; empty: it says nothing of one.
func topicIn(metadata string) string {
	if !strings.HasPrefix(metadata, metadataVersion) {
		return ""
	}
	_, rest, _ := strings.Cut(metadata, topicMark)
	id, _, _ := strings.Cut(rest, ";")
	return id
}

// withCircuit adds a state to metadata of a tracker; an empty one, nothing.
func withCircuit(metadata, state string) string {
	if state == "" || len(circuitMark)+len(state) > circuitMaxBytes {
		return metadata
	}
	if metadata == "" {
		metadata = metadataVersion
	}
	return metadata + circuitMark + state
}

// circuitIn is the state in the metadata of a commit; empty: it says nothing of one.
func circuitIn(metadata string) string {
	if !strings.HasPrefix(metadata, metadataVersion) {
		return ""
	}
	_, state, _ := strings.Cut(metadata, circuitMark)
	return state
}

// ReportCircuit has the next commits say how the agent's circuits are, and asks for one. It
// returns at once. A partition of which nothing was ever read has no commit, and says nothing.
func (s *Session) ReportCircuit(state string) {
	s.mu.Lock()
	s.circuit = state
	s.mu.Unlock()
	s.CommitSoon()
}

// Circuits is what the members of an agent's group said last of their circuits, by partition of
// the topic; those of which none has said anything are left out. Who has gone silent
// may have said it: only partitions of living members count.
func (a *Admin) Circuits(ctx context.Context, group, topic string) (map[int32]string, error) {
	commits, err := a.committedOffsets(ctx, group)
	if noSuchGroup(err) {
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
