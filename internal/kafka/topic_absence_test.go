package kafka

import (
	"testing"
	"time"
)

// A broker may not know a topic for a moment, as after its restart. Where requests are few
// nothing tells that it does again, and the next such moment, hours later, must not be taken
// for the end of the topic.
func TestAbsenceIsReportedAtIntervalsThatDouble(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	var a missingTopic
	for i, c := range []struct {
		after time.Duration
		due   bool
	}{
		{0, true},
		{time.Second, false},
		{time.Hour, true},
		{topicMissingRetryInterval, false},
		{topicMissingReportMin - topicMissingRetryInterval, true},
		{topicMissingReportMin, false},
		{topicMissingReportMin, true}, // twice as long after the second report as that was after the first
		{topicMissingReportMin, false},
	} {
		at = at.Add(c.after)
		if due := a.reportDue(at); due != c.due {
			t.Errorf("%d, %v later: due %v", i, c.after, due)
		}
	}
}
