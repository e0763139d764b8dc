package kafka

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// The output of a transaction is sent in waves to a topic that refused a batch (see producer_split.go). Likewise, an
// agent's replies go in smaller flights (see agentsession). A wave is sent when the one before is acknowledged. The
// records of a wave for a narrow topic have at most max.message.bytes in total, so no batch can exceed it. A record
// that is refused although it is its topic's only one in a wave is too large itself.

// NarrowTopics are the topics that refused a batch, by name.
type NarrowTopics map[string]NarrowLimit

type NarrowLimit struct {
	MaxBytes int // max.message.bytes; 0: not known
	until    time.Time
}

// Narrow bounds a topic that refused a batch. most is its max.message.bytes; 0: unknown, which sends one record at a
// time.
func (n NarrowTopics) Narrow(topic string, most int, now time.Time) {
	if known, narrow := n[topic]; narrow && most >= known.MaxBytes {
		most = 0 // the topic refused records within that bound
	}
	n[topic] = NarrowLimit{most, now.Add(narrowFor)}
}

// DropExpired removes the topics whose time is over, because their configuration may have changed.
func (n NarrowTopics) DropExpired(now time.Time) {
	for topic, t := range n {
		if now.After(t.until) {
			delete(n, topic)
		}
	}
}

// Waves returns the indices of output by wave; nil: all is sent at once.
func (n NarrowTopics) Waves(out []events.Record, now time.Time) [][]int {
	n.DropExpired(now)
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
			size := RecordBytesMax(r)
			if p.bytes > 0 && BatchOverhead+p.bytes+size > t.MaxBytes {
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

// IsAlone reports whether a record is the only one of its topic in a wave.
func (n NarrowTopics) IsAlone(out []events.Record, wave []int, index int) bool {
	if _, narrow := n[out[index].Topic]; !narrow {
		return RecordBytesMin(&out[index]) > BatchBytesMax // the client refuses it
	}
	for _, i := range wave {
		if i != index && out[i].Topic == out[index].Topic {
			return false
		}
	}
	return true
}
