package replay_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/tally"
)

// For any changed bit of a file's lines, the records are unchanged, or the error names the line, or the file can't be
// read.
func TestAnyChangedBitOfAFile(t *testing.T) {
	var b bytes.Buffer
	w := replay.NewWriter(&b, replay.Head{Namespace: "w.", Partitions: 7})
	at := time.UnixMilli(1_780_000_000_123).UTC()
	for i := range 3 {
		r := events.Record{Partition: int32(i % 2), Offset: int64(4711 + i), Time: at, Key: []byte("order-1"), Value: []byte(fmt.Sprintf(`{"step":"charge","n":%d}`, i)),
			Headers: []events.Header{{Key: "ce_type", Value: []byte("waybill.step.started.v1")}, {Key: "ce_id", Value: []byte("\xff")}}}
		if err := w.Write(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	data, flips := b.Bytes(), 0
	head := bytes.IndexByte(data, '\n') + 1
	want := readApart(data)
	if want.err != nil || len(want.changed) > 0 {
		t.Fatal(want.err, want.changed)
	}
	for i := head; i < len(data); i++ {
		line := 1 + bytes.Count(data[:i], []byte("\n"))
		for bit := range 8 {
			edited := bytes.Clone(data)
			edited[i] ^= 1 << bit
			flips++
			got := readApart(edited)
			var cut *replay.CutError
			named := len(got.changed) > 0 && (got.changed[0].Line == line || edited[i] == '\n' || data[i] == '\n')
			if got.err == nil && !named && !sameByPartition(got.records, want.records) {
				t.Fatalf("byte %d of line %d, %q made %q: %v, %v; read as before: no", i, line, data[i], edited[i], got.changed, got.err)
			}
			if errors.As(got.err, &cut) && line < bytes.Count(data, []byte("\n")) && data[i] != '\n' && len(got.changed) == 0 {
				t.Fatalf("byte %d of line %d, %q made %q: only said to be cut: %v", i, line, data[i], edited[i], got.err)
			}
		}
	}
	tally.Add(t, "changed bits of a file found", flips)
}
