package demo

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/waybill-run/waybill/agent"
)

// Handlers returns the agents of all services.
func (w *Services) Handlers() map[string]agent.Handler {
	all := map[string]agent.Handler{}
	for _, service := range ServiceNames {
		all[service] = w.Handler(service)
	}
	return all
}

// Handler returns the agent of a simulated service.
func (w *Services) Handler(service string) agent.Handler {
	return agent.HandlerFunc(func(ctx context.Context, r agent.Request) (any, error) {
		c := Call{Service: service, Operation: r.Operation, Key: r.IdempotencyKey, Request: r.ID, Deadline: r.CompleteBy, Input: r.Input,
			Progress: func(value any) error { return agent.Progress(ctx, value) }}
		if r.UndoOf != nil {
			c.UndoKey, c.UndoInput = r.UndoOf.IdempotencyKey, r.UndoOf.Input
		}
		if r.CheckOf != nil {
			c.CheckKey = r.CheckOf.IdempotencyKey
		}
		out, err := w.Do(ctx, c)
		var f *Failure
		if errors.As(err, &f) && f.Permanent {
			return nil, agent.Rejected(f.Code, f.Message)
		}
		if err != nil {
			return nil, err
		}
		return out, nil
	})
}

// maxCallBytes bounds the body of a call over HTTP.
const maxCallBytes = 1 << 20

// ServeHTTP serves the services at /<service>/<operation>, for the built-in HTTP agent.
func (w *Services) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	service, operation, ok := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxCallBytes))
	if !ok || err != nil || r.Method != http.MethodPost {
		http.Error(rw, "POST /<service>/<operation>", http.StatusBadRequest)
		return
	}
	var v struct {
		UndoOf *struct {
			Key   string          `json:"idempotency_key"`
			Input json.RawMessage `json:"input"`
		} `json:"undo_of"`
		CheckOf struct {
			Key string `json:"idempotency_key"`
		} `json:"check_of"`
	}
	_ = json.Unmarshal(body, &v) // input that isn't an object has neither
	c := Call{Service: service, Operation: operation, Key: r.Header.Get("Idempotency-Key"), Request: r.Header.Get("X-Waybill-Request"), Input: body}
	if c.Deadline, err = time.Parse(time.RFC3339, r.Header.Get("X-Waybill-Complete-By")); err != nil {
		c.Deadline = time.Now().Add(10 * time.Second)
	}
	c.CheckKey = v.CheckOf.Key
	if v.UndoOf != nil {
		c.UndoKey, c.UndoInput = v.UndoOf.Key, v.UndoOf.Input
	}
	out, err := w.Do(r.Context(), c)
	var f *Failure
	switch {
	case errors.As(err, &f):
		status := http.StatusServiceUnavailable
		if f.Permanent {
			status = http.StatusUnprocessableEntity
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		_ = json.NewEncoder(rw).Encode(map[string]string{"code": f.Code, "message": f.Message}) // the caller may have disconnected
	case err != nil:
		http.Error(rw, err.Error(), http.StatusGatewayTimeout)
	default:
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write(out) // the caller may have disconnected
	}
}
