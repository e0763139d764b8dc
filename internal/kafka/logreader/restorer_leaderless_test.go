package logreader_test

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// TestRestoreWaitsForAPartitionWithoutALeader checks that a read waits for a leader and reports that. If it failed
// instead, the worker would restart for this partition again and again and never process its others.
func TestRestoreWaitsForAPartitionWithoutALeader(t *testing.T) {
	t.Parallel() // it mostly waits
	s := embedded(t)
	var leads atomic.Bool
	said := 0
	r := s.restorer(t, &logreader.RestoreListener{Progress: func(topic string, p int32, next, end int64, trouble error) {
		if topic != s.NS.Events() || p != 1 || next >= end || trouble == nil {
			t.Errorf("said of %s/%d: %d of %d, %v", topic, p, next, end, trouble)
		}
		said++
		leads.Store(true)
	}})
	s.Transact(t, 1, kgo.TryCommit, "a", "b")
	s.awaitEnd(t, r, 1, 3)
	s.Fake.ControlKey(int16(kmsg.ListOffsets), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		s.Fake.KeepControl()
		if leads.Load() {
			return nil, nil, false
		}
		return leaderlessError(k.(*kmsg.ListOffsetsRequest)), nil, true
	})
	for way, read := range map[string]func(func([]events.Record) error) error{
		"Read": func(fn func([]events.Record) error) error {
			_, err := r.Read(t.Context(), s.NS.Events(), 1, 0, fn)
			return err
		},
		"ReadLast": func(fn func([]events.Record) error) error {
			_, err := r.ReadLast(t.Context(), s.NS.Events(), 1, 9, fn)
			return err
		},
	} {
		leads.Store(false)
		said = 0
		var values []string
		err := read(func(rs []events.Record) error {
			for _, record := range rs {
				values = append(values, string(record.Value))
			}
			return nil
		})
		if err != nil || !slices.Equal(values, []string{"a", "b"}) || said != 1 {
			t.Errorf("%s: %q, said %d times, %v", way, values, said, err)
		}
	}
}
