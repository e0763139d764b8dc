package point

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// frame is a request as it stands on the wire.
func frame(key, version int16, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	return append(b, body...)
}

// endTxn is a request to end a transaction, as far as it matters.
func endTxn(version int16, commit bool) []byte {
	body := append([]byte("\x00\x00\x00\x07\x00\x02id"), 0)
	if commit {
		body[len(body)-1] = 1
	}
	if version >= endTxnFlexible {
		body = append(body, 0)
	}
	return frame(endTxnKey, version, body)
}

// wire is a connection that keeps what is written, and when points are passed.
type wire struct {
	net.Conn
	written bytes.Buffer
	points  []string // the point and how much was written before it
	at      []int
}

func (w *wire) Write(b []byte) (int, error) { return w.written.Write(b) }

func (w *wire) hook(p Point) {
	w.points, w.at = append(w.points, string(p)), append(w.at, w.written.Len())
}

// Requests in pieces of any size, several in one piece, are found; only those
// that commit pass points, right before their last byte leaves and right after.
func TestWireFindsCommits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		type span struct{ from, to int }
		var commits []span
		for range rapid.IntRange(1, 8).Draw(t, "requests") {
			var b []byte
			kind := rapid.SampledFrom([]string{"commit", "abort", "other", "empty"}).Draw(t, "kind")
			version := int16(rapid.IntRange(0, 5).Draw(t, "version"))
			switch kind {
			case "commit":
				b = endTxn(version, true)
				commits = append(commits, span{len(stream), len(stream) + len(b)})
			case "abort":
				b = endTxn(version, false)
			case "other":
				b = frame(int16(rapid.IntRange(0, 25).Draw(t, "key")), version, rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "body"))
			case "empty":
				b = frame(18, 0, nil)
			}
			stream = append(stream, b...)
		}
		w := &wire{}
		c := &conn{Conn: w, hook: w.hook, answer: make(chan struct{}, 1)}
		for rest := stream; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			if m, err := c.Write(rest[:n]); m != n || err != nil {
				t.Fatalf("wrote %d of %d: %v", m, n, err)
			}
			rest = rest[n:]
		}
		if !bytes.Equal(w.written.Bytes(), stream) {
			t.Fatal("what was written isn't what is on the wire")
		}
		if len(w.points) != 2*len(commits) {
			t.Fatalf("%d commits passed %q", len(commits), w.points)
		}
		for i, s := range commits {
			before, after := w.at[2*i], w.at[2*i+1]
			if w.points[2*i] != string(Produced) || before < s.from || before >= s.to || w.points[2*i+1] != string(Sent) || after != s.to {
				t.Fatalf("commit %d, bytes %v, passed %q after %v bytes", i, s, w.points[2*i:2*i+2], w.at[2*i:2*i+2])
			}
		}
	})
}

// While Sent is being passed the answer is in nobody's hands, though it came.
func TestTheAnswerWaitsForThePoint(t *testing.T) {
	ours, broker := net.Pipe()
	defer broker.Close()
	answered := make(chan struct{})
	go func() {
		request := make([]byte, len(endTxn(4, true)))
		_, _ = io.ReadFull(broker, request)
		_, _ = broker.Write([]byte("answer"))
		close(answered)
	}()
	read := make(chan string, 1)
	early := false
	dial := Dial(func(context.Context, string, string) (net.Conn, error) { return ours, nil }, func(p Point) {
		if p != Sent {
			return
		}
		<-answered // net.Pipe: the bytes are in Read's buffer
		select {
		case <-read:
			early = true
		case <-time.After(50 * time.Millisecond): // as long as a reader needs that isn't held
		}
	})
	c, err := dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		b := make([]byte, 16)
		n, _ := c.Read(b)
		read <- string(b[:n])
	}()
	if _, err := c.Write(endTxn(4, true)); err != nil {
		t.Fatal(err)
	}
	if early {
		t.Fatal("the answer was read while the point was passed")
	}
	if got := <-read; got != "answer" {
		t.Errorf("read %q", got)
	}
}

func TestEveryPointHasARole(t *testing.T) {
	all := slices.Concat(OfScheduler, OfSupervisor, OfAgent)
	for _, p := range []Point{Assigned, Polled, Produced, Sent, Committed, Applied, Taken, Due} {
		if !slices.Contains(all, p) {
			t.Errorf("nobody passes %s", p)
		}
	}
}
