package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/consoleapi"
)

// TestConsoleThatHangsUp: a console that closes each connection at once counts as one that doesn't answer.
func TestConsoleThatHangsUp(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	c := newTestClient(t, "http://"+l.Addr().String())
	c.discovered = true
	_, err = c.Task(t.Context(), "a")
	if codeOf(err) != exitUnreachable || !strings.Contains(err.Error(), "doesn't answer") || !c.shouldReadLog(t.Context(), io.Discard, err) {
		t.Errorf("exit code %d, %v", codeOf(err), err)
	}
}

// TestStreamWithWhatIsNoEvent: an unreadable record in a stream is shown as a line, with a note.
func TestStreamWithWhatIsNoEvent(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, ": waybill\n\nid: 17\nevent: unreadable\ndata: {\"partition\":3,\"offset\":\"17\",\"error\":\"ce_id \\\"\\\"\"}\n\n"+
			"id: 19\nevent: waybill.task.held.v1\ndata: {\"seq\":4,\"type\":\"waybill.task.held.v1\",\"partition\":3,\"offset\":\"19\",\"data\":{\"error\":{\"code\":\"c\"}}}\n\n")
	}))
	t.Cleanup(s.Close)
	var note strings.Builder
	l := &timeline{options: &timelineOptions{tool: tool{output: output{formatJSONL}}}, id: "a", note: &note}
	err := l.follow(t.Context(), newTestClient(t, s.URL), -1, io.Discard)
	if shown := l.lines; err != nil || len(shown) != 2 || shown[0].Type != consoleapi.UnreadableEvent || shown[0].Offset != "17" || shown[0].Error == "" || shown[1].Seq != 4 {
		t.Errorf("%v: %+v", err, shown)
	}
	if got, want := note.String(), "waybill: offset 17 of partition 3 of the events isn't an event: ce_id \"\"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
