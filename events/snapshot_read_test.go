package events

import "testing"

// A snapshot is the shorter way from nothing, or where it is ahead by more than its tasks cost.
func TestSnapshotShorterThanTheLog(t *testing.T) {
	const tasks = 1_000
	far := int64(snapshotLeadMin + tasks)
	for _, c := range []struct {
		name           string
		snapshot, next int64
		want           bool
	}{
		{"nothing is there", 10, 0, true},
		{"nothing is there, and nothing in the snapshot", 0, 0, false},
		{"as far behind as taking it costs", far + 5, 5, false},
		{"further behind", far + 6, 5, true},
		{"ahead of it", 5, far, false},
	} {
		if got := (&Snapshot{Next: c.snapshot}).ShorterThan(c.next, tasks); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
