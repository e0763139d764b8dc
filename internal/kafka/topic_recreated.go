package kafka

import (
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A topic may be deleted and recreated while a client writes to it. The client keeps the first topic's id, so all
// records fail with UNKNOWN_TOPIC_ID until the client is told to forget the topic (franz-go's README, on recreated
// topics). After that it numbers the records of each partition from 0 again. A log that has records of the same
// producer would take them for duplicates and drop them silently. So a topic is forgotten only if it was recreated, and
// once each time.

// FormatTopicID returns an id as Kafka's tools print it; empty: there is none.
func FormatTopicID(id [16]byte) string {
	if id == ([16]byte{}) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// RecreatedError says that a topic was deleted and created again while a client was reading the first one.
type RecreatedError struct{ Topic, Was, Is string }

func (e *RecreatedError) Error() string {
	return fmt.Sprintf("topic %s was deleted and created again: its id was %s and is %s", e.Topic, e.Was, e.Is)
}

// Recreated reports true, for callers that know the error by its methods: a new client reads the new topic.
func (e *RecreatedError) Recreated() bool { return true }

// While a topic is missing, a session retries every TopicMissingRetryInterval. It reports that at once if there was no
// such error for topicMissingReportMin, and then at intervals that double up to topicMissingReportMax.
const (
	topicMissingReportMin     = 5 * time.Second
	TopicMissingRetryInterval = 250 * time.Millisecond
	topicMissingReportMax     = time.Minute
)

// MissingTopic tracks when a topic was last found missing. Nothing reports that it exists again if nothing is written
// to it. So it counts as missing while the error repeats.
type MissingTopic struct {
	last, next time.Time
	wait       time.Duration
}

// ReportDue records that the topic is missing at now, and reports whether that has to be reported.
func (a *MissingTopic) ReportDue(now time.Time) bool {
	if now.Sub(a.last) > topicMissingReportMin {
		a.next, a.wait = now, topicMissingReportMin
	}
	a.last = now
	if now.Before(a.next) {
		return false
	}
	a.next, a.wait = now.Add(a.wait), min(2*a.wait, topicMissingReportMax)
	return true
}

// recreatedTopics makes a client forget recreated topics while others write to these and other topics. It is safe for
// concurrent use.
type recreatedTopics struct {
	mu sync.Mutex
	// forgotten counts how often each topic was forgotten; forgetting are the topics that are being forgotten.
	forgotten  map[string]int
	forgetting []string
}

// generation returns the number of the topic that a new record is for. ok is false while the topic is being forgotten:
// records that the client gets meanwhile fail.
func (m *recreatedTopics) generation(topic string) (number int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.forgotten[topic], !slices.Contains(m.forgetting, topic)
}

// forget forgets a topic because a record with a number from generation failed with IsRecreated. It doesn't block.
func (m *recreatedTopics) forget(cl *kgo.Client, topic string, number int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.forgotten[topic] != number || slices.Contains(m.forgetting, topic) {
		return // already done because of another record
	}
	if m.forgotten == nil {
		m.forgotten = map[string]int{}
	}
	m.forgotten[topic]++
	m.forgetting = append(m.forgetting, topic)
	go func() { // the caller may be the client's goroutine, which PurgeTopicsFromProducing waits for
		cl.PurgeTopicsFromProducing(topic)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.forgetting = slices.DeleteFunc(m.forgetting, func(t string) bool { return t == topic })
	}()
}
