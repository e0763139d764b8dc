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

// ShowCircuit has the next commits say how the agent's circuits are, and asks for one. It
// returns at once. A partition of which nothing was ever read has no commit, and says nothing.
func (s *Session) ShowCircuit(state string) {
	s.mu.Lock()
	s.circuit = state
	s.mu.Unlock()
	s.CommitSoon()
}

// Circuits is what the members of an agent's group said last of their circuits, by partition of
// the topic; those of which none has said anything are left out. Who has gone silent
// may have said it: only partitions of living members count.
func (a *Admin) Circuits(ctx context.Context, group, topic string) (map[int32]string, error) {
	commits, err := a.committed(ctx, group)
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
