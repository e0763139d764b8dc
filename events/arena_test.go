package events

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestArena checks that records made in an Arena equal those made without, however it grows, and that Reset frees its
// memory for reuse.
func TestArena(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	records := func(m *Arena, round int) (all []Record) {
		for i := range 3 * arenaHeadersFirst { // more than the first block holds
			ns := Namespace(fmt.Sprintf("ns%d.", i/arenaHeadersFirst))
			task := strings.Repeat("t", 1+i%50) + fmt.Sprint(round)
			e := &Event{Task: task, Seq: uint64(i + 1), At: at, Fact: &TaskProcessed{}}
			if i%7 == 0 {
				e = &Event{Seq: 3, At: at, Fact: &PartitionClaimed{Owner: task}}
			}
			value, _ := e.SealIn(m, &Task{State: StateError})
			all = append(all, e.RecordIn(m, ns, "source", 4, value))
			q := &Request{Task: task, Ref: RequestRef{Step: "s", Kind: Undo, Attempt: i}, Operation: "do", CompleteBy: at, IdempotencyKey: "k", Traceparent: "t"}
			all = append(all, q.RecordIn(m, ns, "source", fmt.Sprint("agent", i%3), 2))
		}
		return all
	}
	m := &Arena{}
	for round := range 3 {
		headers, text := cap(m.headers), cap(m.text)
		got, want := records(m, round), records(nil, round)
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("round %d, record %d: %v, want %v", round, i, got[i], want[i])
			}
		}
		if round == 2 && (cap(m.headers) != headers || cap(m.text) != text) {
			t.Errorf("round %d: room for %d headers and %d bytes has become %d and %d", round, headers, text, cap(m.headers), cap(m.text))
		}
		m.Reset()
		for _, h := range m.headers[:cap(m.headers)] {
			if h.Key != "" || h.Value != nil {
				t.Fatalf("round %d: a header is still there: %v", round, h)
			}
		}
	}
	m.newHeaders(arenaHeadersKeptMax + 1)
	m.newBytes(arenaTextKeptMax + 1)
	if m.Reset(); m.headers != nil || m.text != nil {
		t.Errorf("room for %d headers and %d bytes was kept", cap(m.headers), cap(m.text))
	}
}

// TestArenaTextsDontOverlap checks that appending to a text or to headers from an Arena changes no others.
func TestArenaTextsDontOverlap(t *testing.T) {
	m := &Arena{}
	a, b := append(m.newBytes(2), "ab"...), append(m.newBytes(2), "cd"...)
	_ = append(a, 'x')
	h, k := append(m.newHeaders(1), Header{Key: "h"}), append(m.newHeaders(1), Header{Key: "k"})
	_ = append(h, Header{Key: "x"})
	if string(b) != "cd" || k[0].Key != "k" {
		t.Errorf("%q, %q", b, k[0].Key)
	}
}
