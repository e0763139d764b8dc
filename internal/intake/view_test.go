package intake

import (
	"fmt"
	"strings"
	"testing"
)

// Positions: an unknown one has no lag, a trimmed topic counts from its start, and a position beyond the end is a fault.
func TestPositions(t *testing.T) {
	o := Offsets{Partitions: 4, Committed: map[int32]int64{0: 10, 1: 2, 3: 4}, Starts: map[int32]int64{0: 0, 1: 5, 2: 0}, Ends: map[int32]int64{0: 17, 1: 6, 2: 9},
		Workers: map[int32]string{0: "a"}}
	list, lag, err := o.Positions()
	if err != nil || lag == nil || *lag != 7+1 {
		t.Errorf("lag %v, %v", lag, err)
	}
	text := ""
	for _, p := range list {
		text += fmt.Sprintf("%d:%s/%s/%s/%s ", p.Partition, orDash(p.Position), orDash(p.End), orDash(p.Lag), p.Worker)
	}
	if text != "0:10/17/7/a 1:2/6/1/ 2:-/9/-/ 3:4/-/-/ " {
		t.Error(text)
	}
	o.Committed[2] = 10
	if _, lag, err = o.Positions(); lag != nil || err == nil || !strings.Contains(err.Error(), "[2]") {
		t.Errorf("%v, %v", lag, err)
	}
	o = Offsets{Partitions: 1, Ends: map[int32]int64{0: 3}}
	if _, lag, err = o.Positions(); lag != nil || err != nil {
		t.Errorf("%v, %v", lag, err)
	}
}

func orDash[T any](v *T) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}
