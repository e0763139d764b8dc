package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

var intakeRecords = flag.Int("intake-records", 20_000, "number of records of TestIntakeSurvivesKills")

// intakeSite is a namespace without schedulers on Apache Kafka, and a topic of another application.
type intakeSite struct {
	t     *testing.T
	b     *kafkatest.Broker
	ns    events.Namespace
	admin *kafkaadmin.Admin
	topic string
	n     int
}

// waybill runs a command to its end.
func (s *intakeSite) waybill(args ...string) {
	s.t.Helper()
	if out, err := productCommand(s.t, s.t.Context(), nil, s.connected(args)).CombinedOutput(); err != nil {
		s.t.Fatalf("waybill %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (s *intakeSite) connected(args []string) []string {
	return append(args, "--brokers", strings.Join(s.b.Addrs, ","), "--namespace", string(s.ns))
}

func (s *intakeSite) apply(name string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "intake.yaml")
	body := fmt.Sprintf("intake: %s\ntopic: %s\nsubmit: {workflow: order, id: \"%s-${ value.id }\", labels: {region: \"${ value.region }\"}}\n", name, s.topic, name)
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.waybill("intake", "apply", file)
}

func (s *intakeSite) start(name string) *process {
	return startProcess(s.t, nil, s.connected([]string{"intake", "run", "--intake", name, "--instance", name, "--session-timeout", "3s", "--transaction-timeout", "6s"})...)
}

// await waits until an intake has consumed a part of the topic, and returns when that was.
func (s *intakeSite) await(name string, part float64) time.Time {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Minute)
	defer cancel()
	for {
		commits, err := s.admin.Commits(ctx, intake.Group(s.ns, name))
		if err != nil && ctx.Err() != nil {
			s.t.Fatal(err)
		}
		done := int64(0)
		for _, offset := range commits[s.topic] {
			done += offset
		}
		if done > 0 && float64(done) >= part*float64(s.n) {
			return time.Now()
		}
		select {
		case <-time.After(20 * time.Millisecond): // Kafka has no notification of a commit
		case <-ctx.Done():
			s.t.Fatalf("%s has consumed %d of %d records", name, done, s.n)
		}
	}
}

// TestIntakeSurvivesKills takes in a topic twice: undisturbed, beside a plain copy of the topic, for the speed; and with
// two processes killed, for the count.
//
//	WAYBILL_TEST=all go test ./cmd/waybill -run TestIntakeSurvivesKills -v -intake-records 1000000
func TestIntakeSurvivesKills(t *testing.T) {
	kafkatest.NeedKafka(t)
	b := kafkatest.Kafka(t)
	s := &intakeSite{t: t, b: b, ns: b.Namespace(t), n: *intakeRecords}
	s.topic = "shop-" + strings.TrimRight(string(s.ns), ".")
	s.waybill("topics", "create", "--partitions", "12")
	cfg := kafkatest.ConfigOf(t, b)
	cfg.Namespace = s.ns
	s.admin = kafkatest.OpenAdmin(t, cfg)
	b.CreateTopics(t, 12, s.topic, s.topic+"-copy")
	defer b.DeleteTopic(t, s.topic)
	defer b.DeleteTopic(t, s.topic+"-copy")
	b.ProduceMany(t, s.topic, s.n, func(i int) []byte {
		return fmt.Appendf(nil, `{"id":"%d","region":"eu","customer":"c-%d","total":12.50,"items":[{"sku":"book-%d","qty":1}],"address":"1 Harbour Road, Oslo"}`, i, i%1000, i%77)
	})

	s.apply("fast")
	p := s.start("fast")
	begun := s.await("fast", 0)
	took := s.await("fast", 1).Sub(begun)
	p.stop(t)
	copied := b.CopyTopic(t, s.topic, s.topic+"-copy", s.n)
	t.Logf("%d records: taken in %.0f a second, copied %.0f a second", s.n, float64(s.n)/took.Seconds(), float64(s.n)/copied.Seconds())

	s.apply("killed")
	for _, part := range []float64{0.3, 0.6} {
		p := s.start("killed")
		s.await("killed", part)
		p.kill()
	}
	s.start("killed")
	s.await("killed", 1)
	tasks := s.ns.Inbox(events.Tasks)
	if records, keys := b.CountKeys(t, tasks, 2*s.n); records != 2*s.n || keys != 2*s.n {
		t.Errorf("%d submissions of %d tasks for %d records, taken in twice", records, keys, s.n)
	}
}
