package console

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// A page has the newest items, as many as fit, for any order of the input. Little more than the page is in memory.
func TestNewestIsBoundedInBytes(t *testing.T) {
	const n, each = 100, 1 << 20
	for name, order := range map[string][]int{"the oldest first": nil, "the newest first": nil, "in any order": rand.New(rand.NewPCG(1, 2)).Perm(n)} {
		if order == nil {
			for i := range n {
				order = append(order, i)
			}
			if name == "the newest first" {
				slices.Reverse(order)
			}
		}
		found := newest[int]{window: &window{limit: 1000, now: time.UnixMilli(1)}}
		for _, i := range order {
			found.add(noticePlace{At: int64(i)}, each, i)
			if found.bytes >= 2*noticesMaxBytes {
				t.Fatalf("%s: %d bytes are held", name, found.bytes)
			}
		}
		list, left, next := found.page()
		if len(list) != noticesMaxBytes/each || left != n-int64(len(list)) || next == "" {
			t.Fatalf("%s: %d on the page, %d left, token %q", name, len(list), left, next)
		}
		for i, got := range list {
			if got != n-1-i {
				t.Errorf("%s: %d at %d", name, got, i)
			}
		}
		if rest := found.list[:cap(found.list)][len(list):]; slices.ContainsFunc(rest, func(p placedItem[int]) bool { return p.bytes > 0 }) {
			t.Errorf("%s: what was cut off is held still", name)
		}
	}
	found := newest[int]{window: &window{limit: 10}}
	if found.add(noticePlace{At: 1}, 2*noticesMaxBytes, 1); len(found.list) != 1 {
		t.Error("what has more than a page is left out")
	}
}

// Pages contain each item once, the newest first, for any sizes and order.
func TestPagesOfNoticesOfAllSizes(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		sizes := make([]int, 200)
		for i := range sizes {
			sizes[i] = 1 + rnd.IntN([]int{10, noticesMaxBytes / 50, noticesMaxBytes / 2}[rnd.IntN(3)])
		}
		var seen []int
		for asked := (&window{limit: 1000, now: time.UnixMilli(1)}); ; {
			found := newest[int]{window: asked}
			for _, i := range rnd.Perm(len(sizes)) {
				found.add(noticePlace{At: int64(i)}, sizes[i], i)
			}
			list, left, next := found.page()
			seen = append(seen, list...)
			if left != int64(len(sizes)-len(seen)) || (left > 0) != (next != "") {
				t.Fatalf("seed %d: %d seen, %d left of %d, token %q", seed, len(seen), left, len(sizes), next)
			}
			if next == "" {
				break
			}
			got, err := parseNoticeToken(next, "")
			if err != nil {
				t.Fatal(err)
			}
			asked = &window{limit: 1000, now: time.UnixMilli(1), after: &got.noticePlace}
		}
		for i, got := range seen {
			if got != len(sizes)-1-i {
				t.Fatalf("seed %d: %d at %d", seed, got, i)
			}
		}
	}
}

// If a source stops because of its size, its next items may be newer than known ones. So the merged page ends there.
func TestMergedNoticesEndAtTheFirstStop(t *testing.T) {
	found := newest[int]{window: &window{limit: 10, now: time.UnixMilli(1)}}
	for i := range 8 {
		found.add(noticePlace{At: int64(i)}, 1, i)
	}
	found.endAt(noticePlace{At: 5})
	found.endAt(noticePlace{At: 3})
	if list, left, next := found.page(); !slices.Equal(list, []int{7, 6, 5}) || left != 5 || next == "" {
		t.Errorf("%v, %d left, token %q", list, left, next)
	}
}

func TestJSONBytes(t *testing.T) {
	for _, text := range []string{"", "plain", `"quoted\\`, "<b>&\x7f", "zwölf 漢字 \U0001F600", "\x00\x01\x1f", "\xff\xfe", "\u2028\u2029"} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(text); err != nil || b.Len() != jsonBytes(text)+len("\"\"\n") {
			t.Errorf("%q: %d bytes, JSON has %d, %v", text, jsonBytes(text), b.Len(), err)
		}
	}
}

// largeDeadletters replaces the dead letters by n of the maximal size. Their JSON is six times as large.
func (w *recording) largeDeadletters(n int) {
	w.other["waybill.deadletters"] = nil
	value := bytes.Repeat([]byte{1}, events.MaxDeadletterBytes)
	for i := range n {
		w.other["waybill.deadletters"] = append(w.other["waybill.deadletters"], events.Record{Topic: "waybill.deadletters", Offset: int64(i), Time: w.now, Value: value,
			Headers: []events.Header{{Key: events.HeaderReason, Value: []byte(events.ReasonBadJSON)}}})
	}
}

// Large dead letters are returned in pages below the limit, and none is missing.
func TestLargeDeadletters(t *testing.T) {
	t.Parallel()
	w := newRecording(t)
	s := w.console(t, nil)
	const n = 25
	w.largeDeadletters(n)
	token, seen := "", 0
	for pages := 1; ; pages++ {
		r := ask(t, s, http.MethodGet, api+"/deadletters?limit=1000&page_token="+token, "")
		var l consoleapi.DeadletterPage
		if err := json.Unmarshal([]byte(r.body), &l); err != nil || len(r.body) > noticesMaxBytes || len(l.Deadletters) == 0 {
			t.Fatalf("page %d: %d bytes, %d dead letters, %v", pages, len(r.body), len(l.Deadletters), err)
		}
		for _, d := range l.Deadletters {
			if seen++; d.Offset != offsetText(int64(n-seen)) {
				t.Errorf("%s at %d", d.Offset, seen)
			}
		}
		if l.Left != int64(n-seen) || (l.Left > 0) != (l.NextPageToken != "") {
			t.Fatalf("page %d: %d left of %d, token %q", pages, l.Left, n-seen, l.NextPageToken)
		}
		if token = l.NextPageToken; token == "" {
			if seen != n || pages < 2 {
				t.Errorf("%d of %d on %d pages", seen, n, pages)
			}
			return
		}
	}
}

// The number of concurrent reads of a topic is bounded. Further reads wait for a while.
func TestTopicReadsAreBounded(t *testing.T) {
	w := newRecording(t)
	w.within.slot = 50 * time.Millisecond
	s := w.console(t, nil)
	reading, on := make(chan bool), make(chan bool)
	w.topic = func() { reading <- true; <-on }
	var asking sync.WaitGroup
	for i := range topicReadsMax {
		asking.Go(func() {
			if r := ask(t, s, http.MethodGet, api+[]string{"/deadletters?since=48h", "/alerts?since=48h"}[i%2], ""); r.status != http.StatusOK {
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	for range topicReadsMax {
		<-reading
	}
	for _, path := range []string{"/deadletters?since=48h", "/alerts?since=48h"} {
		if r := ask(t, s, http.MethodGet, api+path, ""); r.header.Get("Retry-After") == "" || !strings.Contains(problem(t, r, http.StatusServiceUnavailable).Detail, "being read") {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := ask(t, s, http.MethodGet, api+"/alerts?open=true", ""); r.status != http.StatusOK { // from the index alone
		t.Errorf("%d %s", r.status, r.body)
	}
	close(on)
	asking.Wait()
	w.topic = nil
	if r := ask(t, s, http.MethodGet, api+"/deadletters", ""); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A client that doesn't read its response doesn't delay others.
func TestAnswerThatNobodyTakes(t *testing.T) {
	t.Parallel()
	w := newRecording(t)
	w.within.write = time.Second
	s := w.console(t, nil)
	w.largeDeadletters(20)
	reading := make(chan bool)
	w.topic = func() { reading <- true }
	for range topicReadsMax {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, "GET "+api+"/deadletters?limit=1000 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-reading
	}
	w.topic = nil
	if r := ask(t, s, http.MethodGet, api+"/deadletters?limit=1&reason=bad_header", ""); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
}
