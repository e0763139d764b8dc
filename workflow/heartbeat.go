package workflow

import (
	"fmt"
	"time"
)

// MinHeartbeat bounds heartbeats from below. Supervisors, networks and agents need some time for each.
const MinHeartbeat = Duration(time.Second)

// checkHeartbeat checks the heartbeat of a step or of its undo. within is how long an attempt may take; 0: that is a
// fault of its own.
func checkHeartbeat(f *faults, path string, h, within Duration) {
	path += ".heartbeat"
	checkDuration(f, path, h, true)
	switch {
	case h < MinDuration || h > MaxDuration:
	case h < MinHeartbeat:
		f.add(path, fmt.Sprintf("a heartbeat of %s is too short", h), fmt.Sprintf("write %s or more", MinHeartbeat))
	case within > 0 && h >= within:
		f.add(path, fmt.Sprintf("a heartbeat of %s isn't shorter than an attempt, which may take %s", h, within),
			"shorten it, lengthen the attempt's complete_within, or remove it: without a heartbeat an attempt has its whole complete_within")
	}
}

// Heartbeats returns the heartbeats of a step and of its undo; 0: none.
func (d *Definition) Heartbeats(step int) (do, undo time.Duration) {
	s := &d.Steps[step]
	if s.Heartbeat != nil {
		do = time.Duration(*s.Heartbeat)
	}
	if s.Undo != nil && s.Undo.Heartbeat != nil {
		undo = time.Duration(*s.Undo.Heartbeat)
	}
	return do, undo
}

func heartbeatLabel(heartbeat *Duration) string {
	if heartbeat == nil {
		return ""
	}
	return fmt.Sprintf(" (heartbeat %s)", *heartbeat)
}
