package kafka

import (
	"testing"
	"time"
)

// TestAbsenceIsReportedAtIntervalsThatDouble checks when a missing topic is reported. A broker may not know a topic for
// a moment, for example after its restart. If the topic has few requests, nothing shows that the broker knows it again,
// so the next such moment, hours later, must count as a new absence.
func TestAbsenceIsReportedAtIntervalsThatDouble(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	var a MissingTopic
	for i, c := range []struct {
		after time.Duration
		due   bool
	}{
		{0, true},
		{time.Second, false},
		{time.Hour, true},
		{TopicMissingRetryInterval, false},
		{topicMissingReportMin - TopicMissingRetryInterval, true},
		{topicMissingReportMin, false},
		{topicMissingReportMin, true}, // the interval doubles after each report
		{topicMissingReportMin, false},
	} {
		at = at.Add(c.after)
		if due := a.ReportDue(at); due != c.due {
			t.Errorf("%d, %v later: due %v", i, c.after, due)
		}
	}
}
