package logreader_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

const testNS = events.Namespace("test.")

// TestReadToTheEndPassesWhatHoldsNoRecords checks that a read to the end of a log ends although the log's last offsets
// hold no records: they are transaction markers, or compaction removed the records.
func TestReadToTheEndPassesWhatHoldsNoRecords(t *testing.T) {
	c, cfg := fake(t)
	a, ctx := openAdmin(t, cfg), bounded(t)
	must(t, c.CreateTopic(testNS.Definitions(), 1, map[string]string{"cleanup.policy": "compact"}))
	tx, err := kgo.NewClient(append(cfg.ClientOptions(), kgo.TransactionalID("test.tx"))...)
	must(t, err)
	defer tx.Close()
	for _, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		must(t, tx.BeginTransaction())
		must(t, tx.ProduceSync(ctx, &kgo.Record{Topic: testNS.Definitions(), Key: []byte("k"), Value: []byte(fmt.Sprint(commit))}).FirstErr())
		must(t, kafka.EndTransaction(ctx, tx, commit))
	}
	for range 3 {
		must(t, tx.BeginTransaction())
		must(t, tx.ProduceSync(ctx, &kgo.Record{Topic: testNS.Definitions(), Key: []byte("gone")}).FirstErr())
		must(t, kafka.EndTransaction(ctx, tx, kgo.TryCommit))
	}
	c.Compact()
	var keys []string
	must(t, a.ReadCompacted(ctx, testNS.Definitions(), func(r events.Record) error {
		keys = append(keys, string(r.Key)+"="+string(r.Value))
		return nil
	}))
	if len(keys) == 0 || keys[0] != "k=true" || slices.Contains(keys, "k=false") {
		t.Errorf("read %q", keys)
	}
	d, err := logreader.WatchDefinitions(ctx, cfg, func(events.Record) {})
	must(t, err)
	defer d.Close()
	must(t, d.ReadToEndNow(ctx))
}

func TestDefinitionsAreReadToTheEndAsOfTheCall(t *testing.T) {
	_, cfg := fake(t)
	a, p, ctx := openAdmin(t, cfg), openProducer(t, cfg), bounded(t)
	_, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 1})
	must(t, err)
	var mu sync.Mutex
	seen := make(map[string]bool)
	d, err := logreader.WatchDefinitions(ctx, cfg, func(r events.Record) {
		mu.Lock()
		defer mu.Unlock()
		seen[string(r.Key)] = true
	})
	must(t, err)
	defer d.Close()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 25 {
				key := fmt.Sprintf("order/%d.%d", w, i)
				if err := p.Send(ctx, events.Record{Topic: testNS.Definitions(), Partition: -1, Key: []byte(key), Value: []byte("{}")}); err != nil {
					t.Error(err)
					return
				}
				if err := d.ReadToEndNow(ctx); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				ok := seen[key] && seen["format"]
				mu.Unlock()
				if !ok {
					t.Errorf("%s was written before the call and not seen after it", key)
				}
			}
		})
	}
	wg.Wait()
	d.Close()
	if err := d.Err(); err != nil {
		t.Errorf("after Close: %v", err)
	}
	if err := d.ReadToEndNow(ctx); err == nil {
		t.Error("reading to the end after Close succeeded")
	}
}

func TestDefinitionsOfNoNamespaceEndTheWatch(t *testing.T) {
	t.Parallel() // it mostly waits
	_, cfg := fake(t)
	d, err := logreader.WatchDefinitions(bounded(t), cfg, func(events.Record) {})
	must(t, err)
	defer d.Close()
	<-d.Done()
	if err := d.Err(); err == nil || !strings.Contains(err.Error(), "test.definitions") {
		t.Errorf("got %v", err)
	}
}

// TestTheWatchOutlivesALostConnection checks that a watch waits for unavailable brokers. Until then, ReadToEndNow
// returns an error.
func TestTheWatchOutlivesALostConnection(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		cfg, ctx := configOf(t, b), bounded(t)
		a, p := openAdmin(t, cfg), openProducer(t, cfg)
		_, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 1})
		must(t, err)
		g := &kafkatest.Link{}
		watched := cfg
		watched.Dial = g.Dial
		seen := make(chan string, 100)
		d, err := logreader.WatchDefinitions(ctx, watched, func(r events.Record) { seen <- string(r.Key) })
		must(t, err)
		defer d.Close()
		must(t, d.ReadToEndNow(ctx))
		g.Set(true)
		must(t, p.Send(ctx, events.Record{Topic: cfg.Namespace.Definitions(), Partition: -1, Key: []byte("order/1"), Value: []byte("{}")}))
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if err := d.ReadToEndNow(short); err == nil {
			t.Error("read to an end that cannot be reached")
		}
		g.Set(false)
		must(t, d.ReadToEndNow(ctx))
		if first, second := <-seen, <-seen; first != "format" || second != "order/1" {
			t.Errorf("saw %q, %q", first, second)
		}
		if err := d.Err(); err != nil {
			t.Error(err)
		}
	})
}

// TestWatchOfDefinitionsThatAreGoneSaysWhatToDo checks a watch whose topic is deleted, as when a cluster returns
// without its data. It ends with an error that says what to do.
func TestWatchOfDefinitionsThatAreGoneSaysWhatToDo(t *testing.T) {
	t.Parallel() // it mostly waits
	b := kafkatest.Embedded(t)
	cfg, ctx := configOf(t, b), bounded(t)
	_, err := openAdmin(t, cfg).CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 1})
	must(t, err)
	d, err := logreader.WatchDefinitions(ctx, cfg, func(events.Record) {})
	must(t, err)
	t.Cleanup(d.Close)
	b.DeleteTopic(t, cfg.Namespace.Definitions())
	select {
	case <-d.Done():
	case <-ctx.Done():
		t.Fatal("it goes on")
	}
	if err := d.Err(); err == nil || !strings.Contains(err.Error(), "`waybill topics create`") {
		t.Errorf("it ended with %v", err)
	}
}
