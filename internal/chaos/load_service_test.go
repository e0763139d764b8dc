package chaos

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/verify"
)

// faultyService is the services that the agents of a run call: the demo's services behind an HTTP server that injects
// faults at a given rate. The services keep the effects and the ledger. The server changes only calls and responses, as
// networks and machines do, so the ledger stays correct.
type faultyService struct {
	services *demo.Services
	ledger   string
	server   *httptest.Server

	sickness atomic.Int64   // faulty calls per 1,000
	late     sync.WaitGroup // late effects that are pending
	wrongs   [ways]atomic.Int64
}

// serviceFault is a kind of fault of a call.
type serviceFault int

const (
	refused   serviceFault = iota // 503 before any effect
	throttled                     // 429 with Retry-After
	lost                          // the effect happens, and the connection breaks
	failed                        // the effect happens, and the response is 500
	hung                          // no effect and no response
	lateDone                      // the effect happens after the caller's timeout
	huge                          // the effect happens, and the response is too large
	ways
)

var wrongNames = [ways]string{"refused", "throttled", "lost", "failed", "hung", "late", "huge"}

// hugeAnswerBytes is larger than the response that an agent accepts.
const hugeAnswerBytes = 10 << 20

// lateMost bounds how long after the caller's timeout a late effect happens.
const lateMost = 2 * time.Second

func openService(t *testing.T, ledger string) *faultyService {
	t.Helper()
	services, err := demo.OpenServices(ledger)
	if err != nil {
		t.Fatal(err)
	}
	s := &faultyService{services: services, ledger: ledger}
	s.server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

// url returns the URL for the agent of a service.
func (s *faultyService) url(name string) string { return s.server.URL + "/" + name + "/{operation}" }

// setFaultRate sets the number of faulty calls per 1,000.
func (s *faultyService) setFaultRate(ofThousand int64) { s.sickness.Store(ofThousand) }

func (s *faultyService) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if rand.Int64N(1000) >= s.sickness.Load() {
		s.services.ServeHTTP(rw, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller closed the connection
	}
	way := serviceFault(rand.IntN(int(ways)))
	s.wrongs[way].Add(1)
	switch way {
	case refused:
		http.Error(rw, "down", http.StatusServiceUnavailable)
	case throttled:
		rw.Header().Set("Retry-After", "1")
		http.Error(rw, "not so fast", http.StatusTooManyRequests)
	case lost:
		s.perform(r, body)
		panic(http.ErrAbortHandler)
	case failed:
		s.perform(r, body)
		http.Error(rw, "the answer is lost", http.StatusInternalServerError)
	case hung:
		<-r.Context().Done()
	case lateDone:
		s.performLate(r, body)
		<-r.Context().Done()
	case huge:
		if answer := s.perform(r, body); answer.Code != http.StatusOK {
			maps.Copy(rw.Header(), answer.Header())
			rw.WriteHeader(answer.Code)
			_, _ = rw.Write(answer.Body.Bytes()) // the caller may have closed the connection
			return
		}
		_, _ = rw.Write(bytes.Repeat([]byte("x"), hugeAnswerBytes)) // the caller closes the connection before the end
	}
}

// perform performs the call and returns the response.
func (s *faultyService) perform(r *http.Request, body []byte) *httptest.ResponseRecorder {
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	s.services.ServeHTTP(answer, again)
	return answer
}

// performLate performs the call after the caller's timeout.
func (s *faultyService) performLate(r *http.Request, body []byte) {
	by, err := time.Parse(time.RFC3339, r.Header.Get("X-Waybill-Complete-By"))
	if err != nil {
		by = time.Now()
	}
	s.late.Go(func() {
		time.Sleep(time.Until(by) + rand.N(lateMost)) // the delay of a service
		// The services end some calls only when their caller does.
		ctx, cancel := context.WithTimeout(context.Background(), lateMost)
		defer cancel()
		s.perform(r.Clone(ctx), body)
	})
}

// close waits for pending effects and returns the ledger.
func (s *faultyService) close() ([]demo.Entry, error) {
	s.late.Wait()
	if err := s.services.Close(); err != nil {
		return nil, err
	}
	return demo.ReadLedger(s.ledger)
}

func (s *faultyService) counts() map[string]int {
	n := map[string]int{}
	for way := range ways {
		n[wrongNames[way]] = int(s.wrongs[way].Load())
	}
	return n
}

// effects converts a ledger for the checkers.
func effects(ledger []demo.Entry) []verify.Effect {
	var all []verify.Effect
	for _, e := range ledger {
		switch e.What {
		case demo.Effect:
			all = append(all, verify.Effect{What: verify.Happened, Key: e.Key})
		case demo.Undone, demo.Nothing:
			all = append(all, verify.Effect{What: verify.Undone, Key: e.UndoOf})
		}
	}
	return all
}

// A faulty call has exactly the effect of its kind of fault, and the ledger has that effect.
func TestFaultyServiceKeepsItsLedger(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	s := openService(t, t.TempDir()+"/ledger")
	s.setFaultRate(1000)
	// On a kept connection net/http would repeat a call on its own.
	client := &http.Client{Timeout: 300 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	calls := 0
	for calls < 40 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.URL+"/inventory/reserve", bytes.NewReader([]byte("{}")))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", string(rune('A'+calls)))
		r.Header.Set("X-Waybill-Complete-By", time.Now().Add(100*time.Millisecond).Format(time.RFC3339Nano))
		calls++
		if answer, err := client.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
	}
	ledger, err := s.close()
	if err != nil {
		t.Fatal(err)
	}
	n := s.counts()
	total := 0
	for _, name := range slices.Sorted(maps.Keys(n)) {
		total += n[name]
	}
	want := n["lost"] + n["failed"] + n["late"] + n["huge"]
	if happened := len(effects(ledger)); happened != want || total != calls {
		t.Errorf("%d effects of %d calls, want %d: %v", happened, total, want, n)
	}
}
