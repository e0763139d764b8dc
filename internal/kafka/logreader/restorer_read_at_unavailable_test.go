package logreader_test

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestReadAtOfBrokersThatGiveNothing checks that ReadAt fails after some seconds if no broker answers its fetches.
func TestReadAtOfBrokersThatGiveNothing(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	s := embedded(t)
	r := s.restorer(t, nil)
	s.Transact(t, 1, kgo.TryCommit, "a")
	s.awaitEnd(t, r, 1, 2)
	s.Fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		s.Fake.KeepControl()
		return nil, io.EOF, true // closes the connection
	})
	began := time.Now()
	_, err := r.ReadAt(t.Context(), s.NS.Events(), 1, []int64{0}, nil)
	away, is := errors.AsType[*logreader.UnavailableError](err)
	if !is || away.Topic != s.NS.Events() || !slices.Equal(away.Partitions, []int32{1}) || time.Since(began) > time.Minute {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

// TestReadAllBesideAPartitionWithoutALeader checks that ReadAll with Unavailable set skips a partition without a leader
// and reports it. Without Unavailable it fails.
func TestReadAllBesideAPartitionWithoutALeader(t *testing.T) {
	s := embedded(t)
	r := s.restorer(t, nil)
	s.Transact(t, 0, kgo.TryCommit, "a")
	s.Transact(t, 1, kgo.TryCommit, "b")
	s.awaitEnd(t, r, 0, 2)
	s.awaitEnd(t, r, 1, 2)
	s.Fake.ControlKey(int16(kmsg.ListOffsets), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		s.Fake.KeepControl()
		response := leaderlessError(k.(*kmsg.ListOffsetsRequest))
		for i := range response.Topics {
			for j := range response.Topics[i].Partitions {
				if p := &response.Topics[i].Partitions[j]; p.Partition != 1 {
					p.ErrorCode, p.Offset = 0, 0
					if asked := k.(*kmsg.ListOffsetsRequest).Topics[i].Partitions[j]; asked.Timestamp == -1 && p.Partition == 0 {
						p.Offset = 2
					}
				}
			}
		}
		return response, nil, true
	})
	var values []string
	take := func(rs []events.Record) error {
		for i := range rs {
			values = append(values, string(rs[i].Value))
		}
		return nil
	}
	var away []int32
	places, err := r.ReadAll(t.Context(), s.NS.Events(), logreader.Range{Unavailable: func(p int32) { away = append(away, p) }}, take, nil)
	_, there := places[1]
	if err != nil || !slices.Equal(values, []string{"a"}) || !slices.Equal(away, []int32{1}) || there || places[0] != 2 {
		t.Errorf("%q, without %v, to %v: %v", values, away, places, err)
	}
	if _, err := r.ReadAll(t.Context(), s.NS.Events(), logreader.Range{}, take, nil); !errors.Is(err, kerr.LeaderNotAvailable) {
		t.Errorf("who is told of nothing: %v", err)
	}
}
