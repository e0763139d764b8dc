package schedulerworker_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestNothingIsCommittedThatAWrongClockDecided checks a scheduler on a machine with a wrong clock. It must not write a
// time from it: a partition's time never decreases, so after one that is an hour ahead, no deadline would pass for an
// hour.
func TestNothingIsCommittedThatAWrongClockDecided(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	for _, wrong := range []time.Duration{time.Hour, -time.Hour, 0} {
		t.Run(wrong.String(), func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				cfg := s.worker("one")
				cfg.Clock = brokerclock.NewClockWith(func() time.Time { return time.Now().Add(wrong) })
				l := openWorker(t, cfg)
				untilAssigned(t, l, testPartitions)
				kafkatest.Submit(t, s.Outside(t), kafkatest.Input(s.Inboxes[0], 7, "a"))
				in := poll(t, l)
				committed, err := l.Commit(t.Context(), s.Reflect(in))
				if err != nil || committed != (wrong == 0) {
					t.Fatalf("decided by a clock that is %v off: committed %v, %v", wrong, committed, err)
				}
				if got := cfg.Clock.Offset() - wrong; got.Abs() > time.Minute {
					t.Errorf("the clock is %v off, and taken to be %v", wrong, cfg.Clock.Offset())
				}
				if committed {
					return
				}
				var again []events.Record
				until(t, l, "the same again", func(rs []events.Record) bool { again = append(again, rs...); return len(again) == len(in) })
				commit(t, l, len(again), s.Reflect(again))
				if seen := s.Reflected(t, 1); len(seen) != 1 {
					t.Errorf("events: %v", seen)
				}
			})
		})
	}
}

// TestWhatIsWrittenTellsTheTime checks that what an agent or a supervisor writes sets its clock, because they may read
// few records. Without it, an agent that is stopped before it knows the time takes a request as old as the stop for a
// new one, and replies after complete-by.
func TestWhatIsWrittenTellsTheTime(t *testing.T) {
	const wrong = time.Hour
	each(t, func(t *testing.T, s *site) {
		clock := func() *brokerclock.Clock {
			return brokerclock.NewClockWith(func() time.Time { return time.Now().Add(wrong) })
		}
		reply := events.Record{Topic: s.Inboxes[0], Partition: -1, Key: []byte("k"), Value: []byte("{}")}
		told := func(t *testing.T, c *brokerclock.Clock, send func() error) {
			t.Helper()
			for deadline := time.Now().Add(suite.Patience); !c.Fresh(); {
				if err := send(); err != nil || time.Now().After(deadline) {
					t.Fatalf("nothing tells the time (%v)", err)
				}
			}
			if off := c.Offset() - wrong; off.Abs() > time.Minute {
				t.Errorf("the clock is %v off, and taken to be %v", wrong, c.Offset())
			}
		}
		t.Run("producer", func(t *testing.T) {
			cfg := s.worker("one").Config
			cfg.Clock = clock()
			p, err := kafka.OpenProducer(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			told(t, cfg.Clock, func() error { return p.Send(t.Context(), reply) })
		})
		t.Run("session", func(t *testing.T) {
			cfg := agentsession.Config{Config: s.worker("one").Config, Group: "told", Topic: s.Inboxes[1]}
			cfg.Clock = clock()
			m, err := agentsession.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := m.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			told(t, cfg.Clock, func() error { return m.Send(t.Context(), reply) })
		})
	})
}

// TestAWrongClockIsFoundByAnyRecordOfItsInstant checks that decisions by a wrong clock aren't committed if the broker's
// answer names an older record of the same millisecond. Such an answer must not be discarded.
func TestAWrongClockIsFoundByAnyRecordOfItsInstant(t *testing.T) {
	for _, wrong := range []time.Duration{time.Hour, -time.Hour, 0} {
		t.Run(wrong.String(), func(t *testing.T) {
			s := embedded(t)
			cfg := s.worker("one")
			cfg.Clock = brokerclock.NewClockWith(func() time.Time { return time.Now().Add(wrong) })
			l := openWorker(t, cfg)
			untilAssigned(t, l, testPartitions)
			kafkatest.Submit(t, s.Outside(t), kafkatest.Input(s.Inboxes[0], 7, "a"))
			in := poll(t, l)
			answerLatest(s, func() (time.Time, bool) { return time.Now(), true })
			committed, err := l.Commit(t.Context(), s.Reflect(in))
			if err != nil || committed != (wrong == 0) {
				t.Errorf("decided by a clock that is %v off: committed %v, %v", wrong, committed, err)
			}
		})
	}
}

// TestNoRecordTellsNoTime checks that a timestamp of -1 in the answer is ignored. Apache Kafka returns it while another
// writer's record is appended but not yet replicated.
func TestNoRecordTellsNoTime(t *testing.T) {
	for _, wrong := range []time.Duration{time.Hour, 0} {
		t.Run(wrong.String(), func(t *testing.T) {
			s := embedded(t)
			cfg := s.worker("one")
			cfg.Clock = brokerclock.NewClockWith(func() time.Time { return time.Now().Add(wrong) })
			l := openWorker(t, cfg)
			untilAssigned(t, l, testPartitions)
			kafkatest.Submit(t, s.Outside(t), kafkatest.Input(s.Inboxes[0], 7, "a"))
			in := poll(t, l)
			var asked int
			answerLatest(s, func() (time.Time, bool) {
				asked++
				return time.UnixMilli(-1), asked <= 3
			})
			committed, err := l.Commit(t.Context(), s.Reflect(in))
			if err != nil || committed != (wrong == 0) {
				t.Errorf("decided by a clock that is %v off: committed %v, %v", wrong, committed, err)
			}
			if off := cfg.Clock.Offset() - wrong; off.Abs() > time.Minute || asked != 4 {
				t.Errorf("the clock is %v off, and taken to be %v, after %d questions of 4", wrong, cfg.Clock.Offset(), asked)
			}
		})
	}
}

// answerLatest replaces the broker's answers about a partition's latest timestamp (ListOffsets with -3) by the instants
// that the function returns, until it returns false.
func answerLatest(s *site, instant func() (at time.Time, given bool)) {
	s.Fake.ControlKey(int16(kmsg.ListOffsets), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		s.Fake.KeepControl()
		req := k.(*kmsg.ListOffsetsRequest)
		asked := req.Topics[0].Partitions[0]
		if asked.Timestamp != -3 {
			return nil, nil, false
		}
		at, given := instant()
		if !given {
			return nil, nil, false
		}
		answer := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		topic, p := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		topic.Topic = req.Topics[0].Topic
		p.Partition, p.Timestamp, p.Offset = asked.Partition, at.UnixMilli(), -1
		topic.Partitions = append(topic.Partitions, p)
		answer.Topics = append(answer.Topics, topic)
		return answer, nil, true
	})
}
