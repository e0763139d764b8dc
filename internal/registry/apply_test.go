package registry

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/workflow"
)

// versionOf returns a definition of the version with one of several bodies.
func versionOf(t *testing.T, body int) *workflow.Definition {
	t.Helper()
	d, err := workflow.New("race", 1).CompleteWithin(time.Duration(body) * time.Minute).AttemptWithin(10 * time.Second).
		Step(workflow.Step{ID: "a", Agent: "payments", Operation: "do"}).Build()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func createTopics(t *testing.T, admin *kafkaadmin.Admin) {
	t.Helper()
	if _, err := admin.CreateTopics(t.Context(), kafkaadmin.CreateTopicsOptions{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
}

// bodies returns the bodies of that version in the log, in the order of the log.
func bodies(t *testing.T, admin *kafkaadmin.Admin, ns events.Namespace) (list []string) {
	t.Helper()
	err := admin.ReadCompacted(t.Context(), ns.Definitions(), func(r events.Record) error {
		if string(r.Key) != "race/1" {
			return nil
		}
		d, err := workflow.ParseJSON(r.Value)
		if err == nil {
			list = append(list, string(d.JSON()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestAppliedAtOnce: if several clients apply one version with different bodies concurrently, exactly one succeeds, and
// its body is the valid one. That holds for schedulers that follow the log and keep the first body, and for those that
// start after compaction and find only the last.
func TestAppliedAtOnce(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
		admin, err := kafkaadmin.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		createTopics(t, admin)
		const atOnce = 8
		definitions, errs := make([]*workflow.Definition, atOnce), make([]error, atOnce)
		for i := range definitions {
			definitions[i] = versionOf(t, i+1)
		}
		var all sync.WaitGroup
		for i := range definitions {
			all.Go(func() { _, errs[i] = Apply(t.Context(), cfg, definitions[i]) })
		}
		all.Wait()
		counts := ""
		for i, err := range errs {
			switch {
			case err == nil && counts != "":
				t.Error("two bodies are applied")
			case err == nil:
				counts = string(definitions[i].JSON())
			case !errors.Is(err, ErrConflict):
				t.Error(err)
			}
		}
		there := bodies(t, admin, cfg.Namespace)
		if len(there) == 0 || there[0] != counts || there[len(there)-1] != counts {
			t.Errorf("%s is applied, and the log has %q", counts, there)
		}
		if len(there) != 1 {
			t.Errorf("the log has %d bodies", len(there))
		}
	})
}

// TestAppliedAgainWhereTwoBodiesAre: a client that dies between write and check leaves two bodies in the log. Applying
// the valid one again makes it the newest record, which compaction keeps. The other is refused.
func TestAppliedAgainWhereTwoBodiesAre(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	createTopics(t, admin)
	first, other := versionOf(t, 1), versionOf(t, 2)
	for _, d := range []*workflow.Definition{first, other} {
		b.Produce(t, events.Record{Topic: cfg.Namespace.Definitions(), Key: []byte(d.Key()), Value: d.Stored()})
	}
	if _, err := Apply(t.Context(), cfg, other); !errors.Is(err, ErrConflict) {
		t.Errorf("the one that came later: %v", err)
	}
	for range 2 {
		if _, err := Apply(t.Context(), cfg, first); err != nil {
			t.Errorf("the first: %v", err)
		}
		if got, want := bodies(t, admin, cfg.Namespace), fmt.Sprint([]string{string(first.JSON()), string(other.JSON()), string(first.JSON())}); fmt.Sprint(got) != want {
			t.Errorf("the log has %q, want %s", got, want)
		}
	}
}

// TestAppliedBy: the record of a definition says who applied it, and why.
func TestAppliedBy(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	createTopics(t, admin)
	if existed, err := ApplyBy(t.Context(), cfg, versionOf(t, 1), events.By{Who: "olga", Why: "a test"}); existed || err != nil {
		t.Fatal(existed, err)
	}
	got := map[string]string{}
	err = admin.ReadCompacted(t.Context(), cfg.Namespace.Definitions(), func(r events.Record) error {
		for _, h := range r.Headers {
			if string(r.Key) == "race/1" {
				got[h.Key] = string(h.Value)
			}
		}
		return nil
	})
	if _, claimed := got[events.HeaderByClaimed]; err != nil || got[events.HeaderBy] != "olga" || got[events.HeaderWhy] != "a test" || claimed {
		t.Errorf("%v, %v", got, err)
	}
}
