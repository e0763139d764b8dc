package console

import (
	"context"
	"sync"
	"time"
)

// shared asks something once for all callers that need the answer at the same time. While nobody calls, it asks
// nothing. It is safe for concurrent use.
type shared[T any] struct {
	ask func(ctx context.Context) (T, error)

	mu      sync.Mutex
	last    *asking[T] // the latest one without an error; nil: none
	running *asking[T] // nil: none
	next    *asking[T] // begins when running ends; nil: nobody waits for it
}

// asking is one time that something is asked.
type asking[T any] struct {
	began  time.Time
	answer T
	err    error
	done   chan struct{} // closed once answer and err are set
}

// get returns an answer that was asked for at or after an instant, and when. If there is none yet, it waits for one,
// until ctx ends. within bounds how long an answer takes.
func (s *shared[T]) get(ctx context.Context, notBefore time.Time, within time.Duration) (answer T, asked time.Time, err error) {
	a := s.join(notBefore, within)
	select {
	case <-a.done:
		return a.answer, a.began, a.err
	case <-ctx.Done():
		return answer, asked, ctx.Err()
	}
}

// join returns an asking that began at or after an instant. It begins one if need be.
func (s *shared[T]) join(notBefore time.Time, within time.Duration) *asking[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.last != nil && !s.last.began.Before(notBefore):
		return s.last
	case s.running == nil:
		s.start(&asking[T]{done: make(chan struct{})}, within)
		return s.running
	case !s.running.began.Before(notBefore):
		return s.running
	case s.next == nil:
		s.next = &asking[T]{done: make(chan struct{})}
	}
	return s.next
}

// start asks. The caller holds the mutex. No caller's end ends it: others may wait for the same answer.
func (s *shared[T]) start(a *asking[T], within time.Duration) {
	a.began, s.running = time.Now(), a
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		a.answer, a.err = s.ask(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if a.err == nil {
			s.last = a
		}
		close(a.done)
		s.running = nil
		if next := s.next; next != nil {
			s.next = nil
			s.start(next, within)
		}
	}()
}
