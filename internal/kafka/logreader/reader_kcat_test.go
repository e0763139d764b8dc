package logreader_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// interleave writes overlapping transactions of several producers to events/0. About half of them are aborted, and each
// producer begins its next transaction immediately.
func (s *site) interleave(t *testing.T, r *rand.Rand, producers, steps int) {
	t.Helper()
	clients, open := make([]*kgo.Client, producers), make([]bool, producers)
	for i := range clients {
		clients[i] = s.Begin(t, fmt.Sprintf("%sscheduler.writer-%d", s.NS, i), 0)
		open[i] = true
	}
	end := func(i int) {
		if err := kafka.EndTransaction(t.Context(), clients[i], kgo.TransactionEndTry(r.IntN(2) == 0)); err != nil {
			t.Fatal(err)
		}
		open[i] = false
	}
	for step := range steps {
		i := r.IntN(producers)
		if !open[i] {
			if err := clients[i].BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			open[i] = true
		}
		var rs []*kgo.Record
		for n := range 1 + r.IntN(80) {
			rs = append(rs, kafkatest.Input(s.NS.Events(), 0, fmt.Sprintf("%d-%d", step, n)))
		}
		kafkatest.Submit(t, clients[i], rs...)
		if r.IntN(3) > 0 {
			end(i)
		}
	}
	for i := range clients {
		if open[i] {
			end(i)
		}
	}
}

// placed returns records with their offsets, as text.
func placed(rs []events.Record) (all []string) {
	for i := range rs {
		all = append(all, fmt.Sprintf("%d %s", rs[i].Offset, rs[i].Value))
	}
	return all
}

// TestReadersReadWhatKcatReads checks that every reader of Waybill reads the same committed records as kcat, whatever
// was aborted in between: from the start, from the middle, and at sought offsets.
func TestReadersReadWhatKcatReads(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		dice := rand.New(rand.NewPCG(9, 10))
		s.interleave(t, dice, 5, 60)
		s.Transact(t, 0, kgo.TryCommit, "the last")
		var want []events.Record
		for i := 0; len(want) == 0 || string(want[len(want)-1].Value) != "the last"; i++ {
			if i == 100 {
				t.Fatal("kcat doesn't read the last record")
			}
			want = s.ReadTopic(t, s.NS.Events()) // markers are written after EndTxn is acknowledged
		}
		r := s.restorer(t, nil)
		for name, read := range s.readersFrom(t, r) {
			for _, from := range []int{0, len(want) / 3, len(want) - 1} {
				if got := read(want[from].Offset); !slices.Equal(placed(got), placed(want[from:])) {
					t.Errorf("%s from %d: %d records; kcat reads %d", name, want[from].Offset, len(got), len(want)-from)
				}
			}
		}
		for range 200 {
			s.seeksWhatKcatReads(t, r, dice, want)
		}
	})
}

// seeksWhatKcatReads seeks random offsets, including those of markers and of aborted records.
func (s *site) seeksWhatKcatReads(t *testing.T, r *logreader.Restorer, dice *rand.Rand, all []events.Record) {
	t.Helper()
	density := 1 + dice.IntN(300)
	var offsets []int64
	for offset := range all[len(all)-1].Offset + 2 {
		if dice.IntN(density) == 0 {
			offsets = append(offsets, offset)
		}
	}
	var want []events.Record
	for i := range all {
		if _, sought := slices.BinarySearch(offsets, all[i].Offset); sought {
			want = append(want, all[i])
		}
	}
	got, err := r.ReadAt(t.Context(), s.NS.Events(), 0, offsets, nil)
	if err != nil || !slices.Equal(placed(got), placed(want)) {
		t.Fatalf("of %d offsets read %d records (%v), kcat reads %d there:\n%s\n%s", len(offsets), len(got), err, len(want),
			strings.Join(placed(got), ", "), strings.Join(placed(want), ", "))
	}
}

// readersFrom returns the readers that begin at an offset of events/0 and read to the end.
func (s *site) readersFrom(t *testing.T, r *logreader.Restorer) map[string]func(from int64) []events.Record {
	kept := func(into *[]events.Record) func([]events.Record) error {
		return func(rs []events.Record) error {
			for _, r := range rs {
				r.Value = slices.Clone(r.Value)
				*into = append(*into, r)
			}
			return nil
		}
	}
	reader := func(read func(ctx context.Context, from int64, take func([]events.Record) error) error) func(int64) []events.Record {
		return func(from int64) (all []events.Record) {
			ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
			defer cancel()
			if err := read(ctx, from, kept(&all)); err != nil {
				t.Errorf("from %d: %v", from, err)
			}
			return all
		}
	}
	topic := s.NS.Events()
	return map[string]func(int64) []events.Record{
		"Read": reader(func(ctx context.Context, from int64, take func([]events.Record) error) error {
			_, err := r.Read(ctx, topic, 0, from, take)
			return err
		}),
		"ReadAll": reader(func(ctx context.Context, from int64, take func([]events.Record) error) error {
			_, err := r.ReadAll(ctx, topic, logreader.Range{Partitions: []int32{0}, From: from}, take, nil)
			return err
		}),
		"ReadAll, lent": reader(func(ctx context.Context, from int64, take func([]events.Record) error) error {
			_, err := r.ReadAll(ctx, topic, logreader.Range{Partitions: []int32{0}, From: from, ReuseBuffers: true}, take, nil)
			return err
		}),
		"Tail": reader(func(ctx context.Context, from int64, take func([]events.Record) error) error {
			tail, err := logreader.OpenTail(s.Config, topic, map[int32]int64{0: from})
			if err != nil {
				return err
			}
			defer tail.Close()
			return toTheLast(func() ([]events.Record, error) { return tail.Poll(ctx) }, take)
		}),
		"Follower": reader(func(ctx context.Context, from int64, take func([]events.Record) error) error {
			cfg := s.follower()
			cfg.Start = func(_ context.Context, _ string, p int32) (int64, bool, error) { return from, p == 0, nil }
			f := openFollower(t, cfg)
			defer f.Close()
			return toTheLast(func() ([]events.Record, error) { return f.Poll(ctx) }, take)
		}),
	}
}

// toTheLast polls until the last written record is returned.
func toTheLast(poll func() ([]events.Record, error), take func([]events.Record) error) error {
	for {
		rs, err := poll()
		if err != nil {
			return err
		}
		if err := take(rs); err != nil || len(rs) > 0 && string(rs[len(rs)-1].Value) == "the last" {
			return err
		}
	}
}
