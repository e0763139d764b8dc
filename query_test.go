package waybill_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// newNamespace returns the configuration of a namespace without roles, and its system.
func newNamespace(t *testing.T, b *kafkatest.Broker) (waybill.Config, consoleapi.System) {
	t.Helper()
	ns := b.Namespace(t)
	admin, err := kafkaadmin.Open(kafka.Config{Brokers: b.Addrs, Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.CreateTopics(t.Context(), kafkaadmin.CreateTopicsOptions{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	cluster, err := admin.ClusterID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return waybill.Config{Brokers: b.Addrs, Namespace: string(ns)}, consoleapi.System{ClusterID: cluster, Namespace: ns}
}

// TestConsoleOfConfig: a client sends its token and what it asks for to its console. It refuses a console of another
// system, and says whether the console answered.
func TestConsoleOfConfig(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		cfg, mine := newNamespace(t, b)
		serves, incomplete := mine, ""
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				t.Errorf("headers %v", r.Header)
			}
			serves.SetHeaders(w.Header())
			text := `{"tasks":[{"id":"a","state":"processed"},{"id":"b"}],"next_page_token":"","incomplete":[` + incomplete + `]}`
			if filter := r.URL.Query().Get("filter"); filter != `"state:error" "workflow:order/2" "label:shop=eu" "step_in_error:charge" "agent:bank" "due_within:1m0s"` {
				w.WriteHeader(http.StatusNotFound)
				text = `{"title":"Not found","status":404,"detail":"no task"}`
			}
			_, _ = w.Write([]byte(text))
		}))
		t.Cleanup(s.Close)
		open := func(url string) *waybill.Client {
			t.Helper()
			cfg.Console = waybill.Console{URL: url}
			if url != "" {
				cfg.Console.Token = "secret"
			}
			c, err := waybill.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		q := waybill.Query{States: []waybill.State{waybill.Held}, Workflow: "order", Version: 2, Labels: map[string]string{"shop": "eu"}, StepHeld: "charge", Agent: "bank", DueWithin: time.Minute}
		list := func(c *waybill.Client) (ids []string, last error) {
			for task, err := range c.List(t.Context(), q) {
				if last = err; err == nil {
					ids = append(ids, task.ID)
				}
			}
			return ids, last
		}
		c := open(s.URL)
		if ids, err := list(c); err != nil || strings.Join(ids, ",") != "a,b" {
			t.Errorf("listed %v, %v", ids, err)
		}
		incomplete = `{"partition":1,"why":"no_leader","restored":0}`
		if ids, err := list(c); err == nil || !strings.Contains(err.Error(), "no broker leads partition 1") || len(ids) != 2 {
			t.Errorf("listed %v, %v", ids, err)
		}
		if _, err := c.Get(t.Context(), "nobody"); !errors.Is(err, waybill.ErrNotFound) {
			t.Error(err)
		}
		serves.Namespace = events.Namespace("other.")
		if _, err := c.Get(t.Context(), "o"); err == nil || !strings.Contains(err.Error(), "other.") || errors.Is(err, waybill.ErrNotFound) {
			t.Errorf("a console of another namespace: %v", err)
		}
		s.Close()
		if _, err := list(c); !errors.Is(err, waybill.ErrConsoleUnreachable) {
			t.Error(err)
		}
		c = open("")
		if _, err := list(c); !errors.Is(err, waybill.ErrNoConsole) {
			t.Error(err)
		}
		if _, err := c.Get(t.Context(), "nobody"); !errors.Is(err, waybill.ErrNotFound) {
			t.Errorf("from the log: %v", err)
		}
	})
}
