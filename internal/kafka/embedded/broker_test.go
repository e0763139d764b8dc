package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

func start(t testing.TB, o embedded.Options) (*embedded.Broker, kafka.Config) {
	t.Helper()
	e, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	c := e.Config()
	c.Namespace = testNS
	return e, c
}

const testNS = events.Namespace("test.")

var (
	must      = kafkatest.Must
	bounded   = kafkatest.Bounded
	openAdmin = kafkatest.OpenAdmin
)

// client returns a plain franz-go client, for requests that only tests send.
func client(t *testing.T, cfg kafka.Config, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(cfg.Brokers...), kgo.Dialer(cfg.Dial))...)
	must(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// TestOutsideClientsWaitUntilTheDoorIsOpen checks that this process can create the namespace's topics before any other
// client can create one by writing to it.
func TestOutsideClientsWaitUntilTheDoorIsOpen(t *testing.T) {
	e, inside := start(t, embedded.Options{Listen: "127.0.0.1:0", Partitions: 3})
	ctx := bounded(t)
	outside, err := kgo.NewClient(kgo.SeedBrokers(e.Addr()), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic(testNS.Inbox(events.Tasks)))
	must(t, err)
	defer outside.Close()
	written := make(chan error, 1)
	outside.Produce(ctx, kgo.StringRecord("early"), func(_ *kgo.Record, err error) { written <- err })

	a := openAdmin(t, inside)
	_, err = a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 5})
	must(t, err)
	if n, err := a.EndOffsets(ctx, testNS.Inbox(events.Tasks)); err != nil || len(n) != 5 {
		t.Fatalf("tasks has partitions %v (%v), want 5", n, err)
	}
	select {
	case err := <-written:
		t.Fatalf("somebody outside wrote before the door was open: %v", err)
	default:
	}
	e.Open()
	e.Open()
	must(t, <-written)
	must(t, outside.ProduceSync(ctx, &kgo.Record{Topic: "new", Value: []byte("x")}).FirstErr())
	if n, ok, err := a.TopicPartitions(ctx, "new"); n != 3 || !ok || err != nil {
		t.Errorf("a topic made by writing to it has %d partitions (%v, %v), want 3", n, ok, err)
	}
}

func TestRestartedFromItsDirectoryTheBrokerHasEverything(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, sync := range []bool{false, true} {
		t.Run(fmt.Sprint("sync ", sync), func(t *testing.T) {
			o := embedded.Options{DataDir: t.TempDir(), Sync: sync}
			ctx := bounded(t)
			before(ctx, t, o)
			after(ctx, t, o)
		})
	}
}

func before(ctx context.Context, t *testing.T, o embedded.Options) {
	e, cfg := start(t, o)
	a := openAdmin(t, cfg)
	_, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 2})
	must(t, err)
	tx := client(t, cfg, kgo.TransactionalID("test.tx"), kgo.TransactionTimeout(10*time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer tx.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		must(t, tx.BeginTransaction())
		for range 3 {
			must(t, tx.ProduceSync(ctx, &kgo.Record{Topic: testNS.Events(), Partition: 1, Value: []byte(fmt.Sprint(end))}).FirstErr())
		}
		must(t, kafka.EndTransaction(ctx, tx, end))
	}
	// A transaction that is open when the broker closes.
	must(t, tx.BeginTransaction())
	must(t, tx.ProduceSync(ctx, &kgo.Record{Topic: testNS.Events(), Partition: 1, Value: []byte("open")}).FirstErr())
	must(t, a.DeleteRecordsBefore(ctx, testNS.Events(), map[int32]int64{1: 2}))
	committed := kadm.Offsets{}
	committed.Add(kadm.Offset{Topic: testNS.Events(), Partition: 1, At: 4, LeaderEpoch: -1, Metadata: "w1:AQE"})
	must(t, kadm.NewClient(client(t, cfg)).CommitAllOffsets(ctx, "g", committed))
	must(t, e.Close())
}

func after(ctx context.Context, t *testing.T, o embedded.Options) {
	_, cfg := start(t, o)
	a := openAdmin(t, cfg)
	if _, err := a.CheckFormat(ctx); err != nil {
		t.Error(err)
	}
	if fs, err := a.CheckTopics(ctx); err != nil || len(fs) > 0 {
		t.Errorf("topics: %v, %+v", err, fs)
	}
	starts, err := a.StartOffsets(ctx, testNS.Events())
	must(t, err)
	if starts[1] != 1 {
		t.Errorf("the trimmed log starts at %d, want 1: the one before the offset stays", starts[1])
	}
	offsets, err := kadm.NewClient(client(t, cfg)).FetchOffsets(ctx, "g")
	must(t, err)
	if got, _ := offsets.Lookup(testNS.Events(), 1); got.At != 4 || got.Metadata != "w1:AQE" {
		t.Errorf("group offset %+v", got)
	}
	// Three transactions of 3 records and a marker each; the open one begins at 12.
	ends, err := a.CommittedEndOffsets(ctx, testNS.Events())
	must(t, err)
	if ends[1] != 12 {
		t.Errorf("stable to %d while a transaction from before is open at 12", ends[1])
	}
	tx := client(t, cfg, kgo.TransactionalID("test.tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer tx.Close()
	must(t, tx.BeginTransaction())
	must(t, tx.ProduceSync(ctx, &kgo.Record{Topic: testNS.Events(), Partition: 1, Value: []byte("new")}).FirstErr())
	must(t, kafka.EndTransaction(ctx, tx, kgo.TryCommit))
	var got []string
	must(t, a.ReadCompacted(ctx, testNS.Events(), func(r events.Record) error {
		got = append(got, fmt.Sprint(r.Offset, "=", string(r.Value)))
		return nil
	}))
	if want := []string{"1=true", "2=true", "8=true", "9=true", "10=true"}; len(got) != 6 || !slices.Equal(got[:5], want) || !strings.HasSuffix(got[5], "=new") {
		t.Errorf("read %q, want %q and the new one: aborted and torn transactions are not to be seen", got, want)
	}
}

func TestADirectoryHasOneBroker(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := t.TempDir()
	first, _ := start(t, embedded.Options{DataDir: dir})
	if _, err := embedded.Start(embedded.Options{DataDir: dir}); err == nil || !strings.Contains(err.Error(), "in use by another process (pid ") {
		t.Errorf("the second: %v", err)
	}
	must(t, first.Close())
	must(t, first.Close())
	second, err := embedded.Start(embedded.Options{DataDir: dir})
	must(t, err)
	must(t, second.Close())
}

func TestListenIsForThisMachineAndSaysWhatIsWrong(t *testing.T) {
	e, _ := start(t, embedded.Options{Listen: "127.0.0.1:0"})
	for address, want := range map[string]string{
		"0.0.0.0:0":     "reachable from other machines",
		":9092":         "reachable from other machines",
		"example.org:1": "reachable from other machines",
		"9092":          "write host:port",
		e.Addr():        "give another --kafka-listen",
	} {
		if _, err := embedded.Start(embedded.Options{Listen: address}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("listen on %q: got %v, want %q", address, err, want)
		}
	}
}

// TestTheEmbeddedBrokerKeepsTheWritersTime checks that kfake uses the timestamp type of the batch, not of the topic, so
// that a record keeps its writer's time. If this test fails, the embedded broker supports broker time, and doc.go must
// say so.
func TestTheEmbeddedBrokerKeepsTheWritersTime(t *testing.T) {
	_, cfg := start(t, embedded.Options{})
	a, ctx := openAdmin(t, cfg), bounded(t)
	_, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 1})
	must(t, err)
	ahead := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	must(t, client(t, cfg).ProduceSync(ctx, &kgo.Record{Topic: testNS.Events(), Timestamp: ahead, Value: []byte("x")}).FirstErr())
	must(t, a.ReadCompacted(ctx, testNS.Events(), func(r events.Record) error {
		if !r.Time.Equal(ahead) {
			t.Errorf("the record has time %v, its writer said %v", r.Time, ahead)
		}
		return nil
	}))
}

func TestAClosedBrokerRefusesAtOnce(t *testing.T) {
	e, cfg := start(t, embedded.Options{})
	must(t, openAdmin(t, cfg).Ping(bounded(t)))
	must(t, e.Close())
	if _, err := cfg.Dial(bounded(t), "tcp", e.Addr()); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dialed a closed broker: %v", err)
	}
}

func BenchmarkEmbedded(b *testing.B) {
	for _, in := range []bool{true, false} {
		e, cfg := start(b, embedded.Options{Listen: "127.0.0.1:0"})
		e.Open()
		name := "inside"
		if !in {
			name, cfg.Dial = "loopback", nil
		}
		value := make([]byte, 300)
		b.Run(name+"/records", func(b *testing.B) {
			p, err := kafka.OpenProducer(cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			a, _ := kafkaadmin.Open(cfg)
			defer a.Close()
			if _, err := a.EnsureTopic(b.Context(), "bench", 4); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(300)
			for i := 0; i < b.N; i++ {
				p.SendAsync(b.Context(), events.Record{Topic: "bench", Partition: int32(i % 4), Value: value}, func(_ events.Record, err error) {
					if err != nil {
						b.Error(err)
					}
				})
			}
			if err := p.Flush(b.Context()); err != nil {
				b.Error(err)
			}
		})
		b.Run(name+"/round trip", func(b *testing.B) {
			p, err := kafka.OpenProducer(cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			for b.Loop() {
				if err := p.Send(b.Context(), events.Record{Topic: "bench", Value: value}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAdvertisedAddress checks that clients receive the advertised address in metadata. Clients inside the process
// connect all the same.
func TestAdvertisedAddress(t *testing.T) {
	_, cfg := start(t, embedded.Options{Listen: "127.0.0.1:0", Advertise: "proxy.example:1234"})
	brokers, err := kadm.NewClient(client(t, cfg)).ListBrokers(bounded(t))
	must(t, err)
	if len(brokers) != 1 || brokers[0].Host != "proxy.example" || brokers[0].Port != 1234 {
		t.Errorf("clients are told %+v", brokers)
	}
}

// TestLogsHaveIDs checks that each log has its own cluster id, and keeps it after a restart.
func TestLogsHaveIDs(t *testing.T) {
	idOf := func(dir string) string {
		t.Helper()
		e, err := embedded.Start(embedded.Options{DataDir: dir})
		must(t, err)
		id, err := openAdmin(t, e.Config()).ClusterID(bounded(t))
		must(t, err)
		must(t, e.Close())
		return id
	}
	one, two := t.TempDir(), t.TempDir()
	first := idOf(one)
	if again := idOf(one); again != first {
		t.Errorf("the log of %s is of %s later", first, again)
	}
	before := filepath.Join(t.TempDir(), "copy")
	must(t, os.CopyFS(before, os.DirFS(one)))
	meta := filepath.Join(before, "meta.json") // as older builds wrote it
	text, err := os.ReadFile(meta)
	must(t, err)
	must(t, os.WriteFile(meta, []byte(strings.Replace(string(text), first, "waybill-embedded", 1)), 0o600))
	if id := idOf(before); id != "waybill-embedded" {
		t.Errorf("the log of a build before is of %q", id)
	}
	if other, memory := idOf(two), idOf(""); other == first || memory == first || memory == other {
		t.Errorf("%s, another %s, and in memory %s", first, other, memory)
	}
}
