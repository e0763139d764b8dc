package events

import "testing"

// TestSnapshotShorterThanTheLog checks that a snapshot is loaded from offset 0, and if it is ahead by more events than
// its tasks cost.
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
