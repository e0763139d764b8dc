package waybill_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill"
	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

func TestConfigListsAllFaults(t *testing.T) {
	err := waybill.Config{Brokers: []string{"kafka-1", "kafka-2:9092"}, Namespace: "no separator", SASL: waybill.SASL{Mechanism: "GSSAPI", User: "u", Password: "p"},
		PropertiesFile: "no/such/file"}.Validate()
	if err == nil {
		t.Fatal("no fault found")
	}
	for _, want := range []string{`Namespace "no separator"`, `Brokers: "kafka-1"`, `SASL mechanism "GSSAPI" is not supported`, "no/such/file"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not told:\n%v", want, err)
		}
	}
	for want, c := range map[string]waybill.Config{
		"Brokers: none":       {},
		"Console: a Token":    {Brokers: []string{"b:1"}, Console: waybill.Console{Token: "t"}},
		"Console: \"c:8080\"": {Brokers: []string{"b:1"}, Console: waybill.Console{URL: "c:8080"}},
		"without a Mechanism": {Brokers: []string{"b:1"}, SASL: waybill.SASL{User: "u"}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestConfigTakesAPropertiesFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "client.properties")
	text := "bootstrap.servers=kafka-1:9092\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n" +
		"sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"u\" password=\"p\";\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []waybill.Config{{PropertiesFile: file}, {PropertiesFile: file, Brokers: []string{"other:9092"}, Namespace: "orders."}} {
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	nothing := agent.HandlerFunc(func(context.Context, agent.Request) (any, error) { return nil, nil })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	nobody := waybill.Config{Brokers: []string{"127.0.0.1:1"}}
	if _, err := waybill.Open(ctx, nobody); !errors.Is(err, waybill.ErrUnreachable) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
	if err := waybill.Serve(ctx, nobody, "a", nothing); !errors.Is(err, waybill.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
	cancel()
	if err := waybill.Serve(ctx, nobody, "a", nothing); err != nil {
		t.Errorf("the end of ctx is no error: %v", err)
	}
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		cfg := waybill.Config{Brokers: b.Addrs, Namespace: string(b.Namespace(t))}
		if _, err := waybill.Open(t.Context(), cfg); !errors.Is(err, kafkaadmin.ErrNoFormat) || !strings.Contains(err.Error(), "waybill topics create") {
			t.Errorf("got %v", err)
		}
		if err := waybill.Serve(t.Context(), cfg, "a", nothing); err == nil || !strings.Contains(err.Error(), "requests.a doesn't exist; apply a workflow") {
			t.Errorf("got %v", err)
		}
		if err := waybill.Serve(t.Context(), cfg, "not/a/name", nothing); err == nil {
			t.Error("took a name that is none")
		}
	})
}

// An invalid order is refused before anything is written.
func TestSubmitRefusesAllOrNothing(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		ns := b.Namespace(t)
		cfg := kafka.Config{Brokers: b.Addrs, Namespace: ns, Dial: b.Dial}
		admin, err := kafkaadmin.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		if _, err := admin.CreateTopics(t.Context(), kafkaadmin.CreateTopicsOptions{Partitions: 3}); err != nil {
			t.Fatal(err)
		}
		c, err := waybill.Open(t.Context(), waybill.Config{Brokers: b.Addrs, Namespace: string(ns)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		good := waybill.Order{ID: "good", Workflow: "w", Input: map[string]string{"note": "<b>"}}
		for want, bad := range map[string]waybill.Order{
			"id: empty":                     {Workflow: "w"},
			"workflow: missing":             {ID: "x"},
			"unsupported type":              {ID: "x", Workflow: "w", Input: func() {}},
			"bytes; tasks takes at most":    {ID: "x", Workflow: "w", Input: strings.Repeat("x", events.MaxSubmissionBytes)},
			"is a topic of the namespace":   {ID: "x", Workflow: "w", ReplyTo: string(ns) + "events"},
			"can't be a topic's name":       {ID: "x", Workflow: "w", ReplyTo: "no topic!"},
			"at most 249":                   {ID: "x", Workflow: "w", ReplyTo: strings.Repeat("x", events.MaxReplyToBytes+1)},
			"1 of 2 orders: order \"x\": b": {ID: "x"},
		} {
			if err := c.Submit(t.Context(), good, bad); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		if rs := b.ReadTopic(t, ns.Inbox(events.Tasks)); len(rs) != 0 {
			t.Errorf("%d orders were written", len(rs))
		}
		if err := c.Submit(t.Context(), good); err != nil {
			t.Fatal(err)
		}
		if rs := b.ReadTopic(t, ns.Inbox(events.Tasks)); len(rs) != 1 || !strings.Contains(string(rs[0].Value), `"input":{"note":"<b>"}`) {
			t.Errorf("written: %d, the first %s", len(rs), rs[0].Value)
		}
		for want, bad := range map[string]func() error{
			"name: missing":    func() error { return c.Signal(t.Context(), "good", "", waybill.SignalOptions{}) },
			"unsupported type": func() error { return c.Signal(t.Context(), "good", "n", waybill.SignalOptions{Data: func() {}}) },
		} {
			if err := bad(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		if err := c.Signal(t.Context(), "good", "approved", waybill.SignalOptions{Data: "<b>&", ID: "1", By: "alice"}); err != nil {
			t.Fatal(err)
		}
		if rs := b.ReadTopic(t, ns.Inbox(events.Signals)); len(rs) != 1 || string(rs[0].Value) != `{"task":"good","name":"approved","id":"1","by_claimed":"alice","data":"<b>&"}` {
			t.Errorf("written: %d, the first %s", len(rs), rs[0].Value)
		}
		// No scheduler runs, and the error of Cancel says so.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Cancel(ctx, "good", waybill.CancelOptions{}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "check that a scheduler runs") {
			t.Errorf("got %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Submit(t.Context(), good); !errors.Is(err, waybill.ErrClosed) {
			t.Errorf("got %v", err)
		}
		if _, err := c.Get(t.Context(), "good"); !errors.Is(err, waybill.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}
