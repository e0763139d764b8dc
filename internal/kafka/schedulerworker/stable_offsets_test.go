package schedulerworker

import (
	"encoding/binary"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// sink keeps the bytes of the last write.
type sink struct {
	net.Conn
	last []byte
}

func (s *sink) Write(b []byte) (int, error) {
	s.last = b
	return len(b), nil
}

// TestSettledOffsetsAreFetchedAsTheyAre checks that only the RequireStable flag of an OffsetFetch request is changed,
// once, in all versions that the client may use.
func TestSettledOffsetsAreFetchedAsTheyAre(t *testing.T) {
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = "g"
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.TopicID, topic.Partitions = "t", [16]byte{1}, []int32{1}
	group.Topics = append(group.Topics, topic)
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID("c"))
	ask := func(version int16, stable bool) []byte {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version, req.Group, req.RequireStable = version, "g", stable
		req.Groups = append(req.Groups, group)
		return format.AppendRequest(nil, req, 1)
	}
	a := &pendingOffsets{waiting: map[int32]bool{}}
	to := &sink{}
	conn := &stableFlagConn{to, a.resetStable}
	write := func(what string, b, want []byte) {
		t.Helper()
		before := string(b)
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		if string(to.last) != string(want) {
			t.Errorf("%s: wrote %x, want %x", what, to.last, want)
		}
		if string(b) != before {
			t.Errorf("%s: the client's own bytes were changed", what)
		}
	}
	for version := range kmsg.NewPtrOffsetFetchRequest().MaxVersion() + 1 {
		a.stable = true
		write("settled", ask(version, true), ask(version, false))
		if flagged := version >= offsetFetchFlexible; a.stable == flagged {
			t.Errorf("version %d: settled is %v afterwards", version, a.stable)
		}
		a.stable = false
		write("not settled", ask(version, true), ask(version, true))
	}
	a.stable = true
	end := kmsg.NewPtrEndTxnRequest()
	end.Version, end.TransactionalID, end.Commit = 3, "x", true
	lookalike := format.AppendRequest(nil, end, 1)
	if n := len(lookalike); lookalike[n-2] != 1 || lookalike[n-1] != 0 {
		t.Fatalf("it doesn't end alike: %x", lookalike)
	}
	write("another request", lookalike, lookalike)
	half := ask(9, true)
	binary.BigEndian.PutUint32(half, uint32(len(half)))
	write("half a request", half, half)
}
