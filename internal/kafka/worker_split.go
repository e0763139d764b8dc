package kafka

import (
	"context"
	"time"

	"github.com/waybill-run/waybill/events"
)

// A transaction's output goes to a topic in waves if the topic refused a batch (see
// producer_split.go), and an agent's replies go in smaller flights (see session_send.go): the next wave is sent when the one before is acknowledged, and each has
// at most what the topic takes, so that no batch has more. One that is refused though it is its
// topic's only record in a wave is too large itself.

// narrowTopics are a worker's topics that refused a batch.
type narrowTopics map[string]narrowLimit

type narrowLimit struct {
	maxBytes int // max.message.bytes; 0: not known
	until    time.Time
}

// refused has smaller batches sent to a topic that refused one, and takes at most so many bytes as one; 0: not known.
func (n narrowTopics) narrow(topic string, most int, now time.Time) {
	if known, narrow := n[topic]; narrow && most >= known.maxBytes {
		most = 0 // it refused what that should allow
	}
	n[topic] = narrowLimit{most, now.Add(narrowFor)}
}

// widen has those forgotten whose time is over: their settings may have changed.
func (n narrowTopics) dropExpired(now time.Time) {
	for topic, t := range n {
		if now.After(t.until) {
			delete(n, topic)
		}
	}
}

// waves are the indices of output by wave; nil: it goes at once.
func (n narrowTopics) waves(out []events.Record, now time.Time) [][]int {
	n.dropExpired(now)
	if len(n) == 0 {
		return nil
	}
	type place struct{ wave, bytes int }
	at := map[string]place{}
	var waves [][]int
	for i := range out {
		r, p := &out[i], place{}
		if t, narrow := n[r.Topic]; narrow {
			p = at[r.Topic]
			size := recordBytesMax(r)
			if p.bytes > 0 && batchOverhead+p.bytes+size > t.maxBytes {
				p.wave, p.bytes = p.wave+1, 0
			}
			p.bytes += size
			at[r.Topic] = p
		}
		for len(waves) <= p.wave {
			waves = append(waves, nil)
		}
		waves[p.wave] = append(waves[p.wave], i)
	}
	return waves
}

// alone reports whether a record is the only one of its topic in a wave.
func (n narrowTopics) isAlone(out []events.Record, wave []int, index int) bool {
	if _, narrow := n[out[index].Topic]; !narrow {
		return recordBytesMin(&out[index]) > batchBytesMax // the client refuses it
	}
	for _, i := range wave {
		if i != index && out[i].Topic == out[index].Topic {
			return false
		}
	}
	return true
}

// split is for a record that was refused as too large: the error of one that is too large
// itself; nil: it was in a batch, and its topic gets smaller ones from now on.
func (l *Worker) narrowTopic(ctx context.Context, out []events.Record, refused *ProduceError) error {
	r := &out[refused.Index]
	known, narrow := l.narrow[r.Topic]
	if refused.alone {
		bound := known.maxBytes
		if !narrow {
			bound = batchBytesMax
		}
		return &TooLargeError{Topic: r.Topic, Bytes: recordBytesMin(r), Max: bound, Err: refused.Err}
	}
	l.narrow.narrow(r.Topic, maxMessageBytes(ctx, l.session.Client(), r.Topic), time.Now())
	return nil
}
