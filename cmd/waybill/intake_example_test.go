package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
)

// schemaRegistry is a registry with the part of Confluent's API that a producer and an intake use.
func schemaRegistry(t *testing.T) string {
	var mu sync.Mutex
	var schemas []string // the id of one is its index, and 1
	mux := http.NewServeMux()
	mux.HandleFunc("POST /subjects/{subject}/versions", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Schema string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		schemas = append(schemas, in.Schema)
		_ = json.NewEncoder(w).Encode(map[string]int{"id": len(schemas)}) // a client that is gone needs no answer
	})
	mux.HandleFunc("GET /schemas/ids/{id}", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.PathValue("id") != "1" || len(schemas) != 1 {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(map[string]any{"error_code": 40403, "message": "Schema not found"})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"schema": schemas[0]})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// TestShopOrders runs docs/tutorials/shop-orders.md: a Python program with librdkafka writes Avro to its topic, and its
// orders become tasks.
func TestShopOrders(t *testing.T) {
	suite.NeedAll(t, "Python with confluent_kafka")
	registry := schemaRegistry(t)
	example := filepath.Join(repository, "docs/examples/shop-orders")
	u := startUpProcess(t, "--demo", "--listen", "127.0.0.1:0", "--schema-registry", registry)
	u.waybill(t, exitOK, "workflow", "apply", abs(t, filepath.Join(example, "shop-orders.yaml")))
	if out, err := exec.Command("/usr/bin/python3", filepath.Join(example, "shop.py"), u.broker.Addrs[0], registry, "shop.orders").CombinedOutput(); err != nil {
		t.Fatalf("shop.py: %v\n%s", err, out)
	}
	u.waybill(t, exitOK, "intake", "apply", abs(t, filepath.Join(example, "shop-orders.intake.yaml")))
	got := u.broker.AwaitRecords(t, 3, u.ns.Inbox(events.Tasks), u.ns.Deadletters())
	if n := len(got[u.ns.Inbox(events.Tasks)]); n != 2 {
		t.Errorf("%d submissions, want 2", n)
	}
	if letters := got[u.ns.Deadletters()]; len(letters) != 1 || reasonOf(&letters[0]) != string(events.ReasonBadAvro) {
		t.Errorf("dead letters: %+v", letters)
	}
	out := ""
	for _, id := range []string{"shop-1001", "shop-1002"} {
		out += u.waybill(t, exitOK, "task", "wait", id, "--timeout", "2m", "-o", "jsonl")
	}
	const input = `"input":{"card":"tok","items":[{"qty":1,"sku":"book"},{"qty":2,"sku":"pen"}],"placed_at":"2026-11-26T08:30:00Z","total":12.50}`
	for _, want := range []string{input, `"region":"eu"`, `"state":"processed"`, `"intake":{"name":"shop-orders","topic":"shop.orders"`} {
		if strings.Count(out, want) != 2 {
			t.Errorf("%s is %d times in\n%s", want, strings.Count(out, want), out)
		}
	}
}

func reasonOf(letter *events.Record) string {
	reason, _ := letter.Header(events.HeaderReason)
	return reason
}

func abs(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return full
}
