package kafka

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A topic may be deleted and made anew under a client that wrote to it. The client holds on
// to the first one's id: whatever it is given then fails with UNKNOWN_TOPIC_ID, until it is
// told to forget the topic (franz-go's README, on recreated topics). It counts the records
// of each partition from 0 again after that, and a log that has some of the same producer
// would take them for repetitions, and drop them in silence. So a topic is forgotten when it
// isn't the one that was written to, and once for each time that it was made anew.

// isRecreated reports whether a record failed since its topic isn't the one that the client
// knows.
func isRecreated(err error) bool { return errors.Is(err, kerr.UnknownTopicID) }

// isTopicMissing reports whether an error says that there is no such topic, or another of its name.
func isTopicMissing(err error) bool {
	return isRecreated(err) || errors.Is(err, kerr.InconsistentTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition)
}

// While a topic isn't there a session asks again after topicMissingRetryInterval, and reports it first after nothing was
// wrong for topicMissingReportMin, then at intervals that double up to topicMissingReportMax. News of a topic that is new takes
// a moment.
const (
	topicMissingReportMin     = 5 * time.Second
	topicMissingRetryInterval = 250 * time.Millisecond
	topicMissingReportMax     = time.Minute
)

// absence is since when a topic isn't there. Nobody says that it is again, where nothing is
// written to it; so it is for as long as that is seen again and again.
type missingTopic struct {
	last, next time.Time
	wait       time.Duration
}

// due notes that a topic isn't there at now, and says whether that is to be reported.
func (a *missingTopic) reportDue(now time.Time) bool {
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

// remade has a client forget topics that were made anew, while others write to the same and
// to other topics. It is safe for concurrent use.
type recreatedTopics struct {
	mu sync.Mutex
	// forgotten counts how often each topic was; forgetting are those that are being.
	forgotten  map[string]int
	forgetting []string
}

// begin is for a record that is to be written: which topic of that name it is for; not ok:
// it is being forgotten, and what the client is given meanwhile fails.
func (m *recreatedTopics) generation(topic string) (number int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.forgotten[topic], !slices.Contains(m.forgetting, topic)
}

// failed is for a record that begin gave a number, and that failed since its topic was made
// anew. It doesn't block.
func (m *recreatedTopics) forget(cl *kgo.Client, topic string, number int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.forgotten[topic] != number || slices.Contains(m.forgetting, topic) {
		return // it is forgotten, for another record
	}
	if m.forgotten == nil {
		m.forgotten = map[string]int{}
	}
	m.forgotten[topic]++
	m.forgetting = append(m.forgetting, topic)
	go func() { // the caller may be the client's goroutine that this waits for
		cl.PurgeTopicsFromProducing(topic)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.forgetting = slices.DeleteFunc(m.forgetting, func(t string) bool { return t == topic })
	}()
}
