package kafka

import (
	"testing"
	"time"
)

// A broker may not know a topic for a moment, as after its restart. Where requests are few
// nothing tells that it does again, and the next such moment, hours later, must not be taken
// for the end of the topic.
func TestAbsenceIsToldOfAgainAndAgain(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	var a absence
	for _, c := range []struct {
		after       time.Duration
		first, last bool
	}{
		{0, true, false},
		{time.Second, false, false},
		{time.Hour, true, false},
		{topicGoneAgain, false, false},
		{topicGoneMost - topicGoneAgain, false, false},
		{topicGoneAgain, false, true},
		{topicGoneAgain, false, true},
	} {
		at = at.Add(c.after)
		if first, last := a.told(at); first != c.first || last != c.last {
			t.Errorf("%v later: first %v, lasts %v; want %v, %v", c.after, first, last, c.first, c.last)
		}
	}
}
