package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The cards, and how the payment service behaves for each.
const (
	CardWorks     = "tok"
	CardDeclined  = "tok_declined"   // charge is rejected
	CardSlow      = "tok_slow"       // the first charge takes effect after its caller's deadline
	CardDown      = "tok_down"       // charge fails several times before it works
	CardStuckUndo = "tok_stuck_undo" // charges, but says that it failed; and can't be refunded at first
)

// ServiceNames are the names of the services.
var ServiceNames = []string{"inventory", "payments", "shipping"}

// downFailures is how often a charge of tok_down fails: more often than the demo's workflow tries before its
// cool-down.
const downFailures = 5

// stuckUndoFailures is how often a refund of tok_stuck_undo fails without Repair: more often than a workflow
// tries before it holds the order, so that an operator must resubmit it, several times.
const stuckUndoFailures = 20

// latencyMax bounds the duration of a call without faults.
const latencyMax = 10 * time.Millisecond

// lateEffectDelay is the time from the caller's deadline to a late effect.
const lateEffectDelay = 30 * time.Millisecond

// Call is one call of a service.
type Call struct {
	Service, Operation string
	Key                string
	Request            string // for the ledger
	Deadline           time.Time
	Input              json.RawMessage
	// UndoKey and UndoInput are those of the call that this one undoes; empty: it is no undo.
	UndoKey   string
	UndoInput json.RawMessage
	// CheckKey is the key that this call asks about; empty: it is no check.
	CheckKey string
	// Progress reports how far the call is; nil: nobody asks.
	Progress func(value any) error
}

// Failure is the error that a service answers.
type Failure struct {
	Permanent bool
	Code      string
	Message   string
}

func (f *Failure) Error() string { return f.Code + ": " + f.Message }

// Services is the services and their state. It is safe for concurrent use.
type Services struct {
	ledger *Ledger

	mu         sync.Mutex
	effects    map[string]string // by key: the operation that took effect
	calls      map[string]int    // by key: calls that may still take effect
	undoneKeys map[string]bool   // by key: undone, before or after its effect
	undosDone  map[string]bool   // by the undo's own key: done
	tries      map[string]int    // by key
	asked      map[string]int    // by parcel: how often its carrier was asked where it is
	repaired   bool
	pending    sync.WaitGroup
	ledgerErr  error
}

// OpenServices opens the services whose ledger is at path, with the state that the ledger has.
func OpenServices(path string) (*Services, error) {
	l, had, err := OpenLedger(path)
	if err != nil {
		return nil, err
	}
	w := &Services{ledger: l, effects: map[string]string{}, calls: map[string]int{}, undoneKeys: map[string]bool{}, undosDone: map[string]bool{}, tries: map[string]int{}, asked: map[string]int{}}
	for _, e := range had {
		switch e.What {
		case Called:
			w.tries[e.Key]++
		case Effect:
			w.effects[e.Key] = e.Operation
		case Undone, Nothing:
			w.undoneKeys[e.UndoOf], w.undosDone[e.Key] = true, true
		}
	}
	return w, nil
}

// Close waits for pending late effects and closes the ledger. It returns the first error of the ledger.
func (w *Services) Close() error {
	w.pending.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.ledger.Close(); w.ledgerErr == nil {
		w.ledgerErr = err
	}
	return w.ledgerErr
}

// Repair makes undos of tok_stuck_undo succeed from now on.
func (w *Services) Repair() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.repaired = true
}

// Do performs a call. The error is a *Failure, or that of ctx: the call may still take effect then.
func (w *Services) Do(ctx context.Context, c Call) (json.RawMessage, error) {
	if c.UndoKey == "" && c.CheckKey == "" {
		defer w.countCall(c.Key)()
	}
	timer := time.NewTimer(latency(c.Key))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch {
	case c.UndoKey != "":
		return w.undo(c)
	case c.CheckKey != "":
		return w.status(c)
	}
	return w.do(ctx, c)
}

// status tells what became of a key. As long as a call may still take effect, nobody can tell.
func (w *Services) status(c Call) (json.RawMessage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.ledger.Append(entry(c, Called)); err != nil {
		return nil, err
	}
	operation, happened := w.effects[c.CheckKey]
	switch {
	case happened && !w.undoneKeys[c.CheckKey]:
		out := output(Call{Service: c.Service, Operation: operation, Key: c.CheckKey})
		return fmt.Appendf(nil, `{"outcome":"completed","output":%s}`, out), nil
	case w.calls[c.CheckKey] > 0:
		return json.RawMessage(`{"outcome":"unknown"}`), nil
	}
	return json.RawMessage(`{"outcome":"none"}`), nil
}

// countCall counts a call that may take effect, until the returned function is called.
func (w *Services) countCall(key string) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[key]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls[key]--
	}
}

// latency is derived from the key, so that a demo with the same seed repeats.
func latency(key string) time.Duration {
	h := fnv.New64a()
	h.Write([]byte(key))
	return time.Duration(h.Sum64() % uint64(latencyMax))
}

func (w *Services) do(ctx context.Context, c Call) (json.RawMessage, error) {
	w.mu.Lock()
	w.tries[c.Key]++
	try := w.tries[c.Key]
	w.mu.Unlock()
	if c.Service == "payments" && c.Operation == "transfer" {
		return w.transfer(ctx, c)
	}
	card := ""
	if c.Operation == "charge" {
		card = cardOf(c.Input)
		switch {
		case card == CardDeclined:
			w.appendCall(c, Called)
			return nil, &Failure{Permanent: true, Code: "card_declined", Message: "the bank declined the card"}
		case card == CardSlow && try == 1:
			w.appendCall(c, Called)
			w.effectLater(c)
			<-ctx.Done()
			return nil, ctx.Err()
		case card == CardDown && try <= downFailures:
			w.appendCall(c, Called)
			return nil, &Failure{Code: "unavailable", Message: fmt.Sprintf("the bank is down (call %d)", try)}
		}
	}
	if err := w.effect(c, false); err != nil {
		return nil, err
	}
	if card == CardStuckUndo {
		return nil, &Failure{Code: "connection_reset", Message: "the connection was reset before the answer"}
	}
	if c.Service == "shipping" && c.Operation == "track" {
		return w.track(c), nil
	}
	return output(c), nil
}

func output(c Call) json.RawMessage {
	h := fnv.New32a()
	h.Write([]byte(c.Key))
	name := "result"
	switch c.Service {
	case "inventory":
		name = "reservation"
	case "payments":
		name = "charge"
	case "shipping":
		name = "tracking"
	}
	if c.Operation == "track" {
		return fmt.Appendf(nil, `{%q:"%s-%08x","status":%q}`, name, c.Operation, h.Sum32(), parcelStatus(c.Key))
	}
	return fmt.Appendf(nil, `{%q:"%s-%08x"}`, name, c.Operation, h.Sum32())
}

// parcelStatus returns the status of a parcel at a call of a repeated step: it is delivered at the third call. The number
// of the call is at the end of its key.
func parcelStatus(key string) string {
	if n, err := strconv.Atoi(key[strings.LastIndexByte(key, '/')+1:]); err == nil && n >= 3 {
		return "delivered"
	}
	return "on its way"
}

// effectLater takes effect after the caller's deadline.
func (w *Services) effectLater(c Call) {
	end := w.countCall(c.Key)
	w.pending.Go(func() {
		defer end()
		time.Sleep(time.Until(c.Deadline) + lateEffectDelay)
		if err := w.effect(c, true); err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			var refused *Failure // the key was undone meanwhile
			if !errors.As(err, &refused) && w.ledgerErr == nil {
				w.ledgerErr = err
			}
		}
	})
}

// effect takes effect, once for each key and not after its undo.
func (w *Services) effect(c Call, late bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	entries := make([]Entry, 0, 2)
	if !late {
		entries = append(entries, entry(c, Called))
	}
	barred := w.undoneKeys[c.Key]
	if _, had := w.effects[c.Key]; !barred && !had {
		w.effects[c.Key] = c.Operation
		e := entry(c, Effect)
		e.Late = late
		entries = append(entries, e)
	}
	if len(entries) > 0 {
		if err := w.ledger.Append(entries...); err != nil {
			return err
		}
	}
	if barred {
		return &Failure{Permanent: true, Code: "undone", Message: "this key was undone"}
	}
	return nil
}

func (w *Services) undo(c Call) (json.RawMessage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries[c.Key]++
	if c.Operation == "refund" && cardOf(c.UndoInput) == CardStuckUndo && !w.repaired && w.tries[c.Key] <= stuckUndoFailures {
		return nil, w.appendAndFail(entry(c, Called), &Failure{Code: "refund_unavailable", Message: "refunds are down"})
	}
	entries := []Entry{entry(c, Called)}
	if !w.undosDone[c.Key] {
		w.undosDone[c.Key], w.undoneKeys[c.UndoKey] = true, true
		what := Nothing
		if _, happened := w.effects[c.UndoKey]; happened {
			what = Undone
		}
		entries = append(entries, entry(c, what))
	}
	if err := w.ledger.Append(entries...); err != nil {
		return nil, err
	}
	return json.RawMessage(`{"undone":true}`), nil
}

func (w *Services) appendAndFail(e Entry, then error) error {
	if err := w.ledger.Append(e); err != nil {
		return err
	}
	return then
}

func (w *Services) appendCall(c Call, what What) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.ledger.Append(entry(c, what)); err != nil && w.ledgerErr == nil {
		w.ledgerErr = err
	}
}

func entry(c Call, what What) Entry {
	return Entry{At: time.Now().UTC(), Service: c.Service, Operation: c.Operation, What: what, Key: c.Key, UndoOf: c.UndoKey, Request: c.Request}
}

func cardOf(input json.RawMessage) string {
	var v struct {
		Card string `json:"card"`
	}
	if json.Unmarshal(input, &v) != nil {
		return "" // no card: no misbehaviour
	}
	return v.Card
}
