package kafkatest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
)

// Kcat runs kcat against the broker and returns its standard output. kcat is a client of another family (librdkafka),
// outside this process. Plain go test needs only Go, so Kcat skips the test there; with WAYBILL_TEST=all the test fails
// if kcat isn't installed.
func (b *Broker) Kcat(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	if b.Dial != nil {
		t.Fatal("kcat can't reach a broker on a virtual network")
	}
	suite.NeedAll(t, "kcat")
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		t.Fatalf("kcat is missing (%v): install it (Debian: apt-get install kcat)", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, kcat, append([]string{"-b", strings.Join(b.Addrs, ","), "-q"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("kcat %q: %v (%v)\n%s", args, err, ctx.Err(), &complaints)
	}
	return out.String()
}

// ReadTopic returns all committed records of a topic as kcat reads them, partition by partition, up to the end offsets
// at the start of the read.
func (b *Broker) ReadTopic(t testing.TB, topic string) []events.Record {
	t.Helper()
	out := b.Kcat(t, "", "-C", "-t", topic, "-o", "beginning", "-e", "-J", "-X", "isolation.level=read_committed")
	records, err := parseKcat(strings.NewReader(out))
	if err != nil {
		t.Fatalf("kcat -J of %s: %v\n%s", topic, err, out)
	}
	return records
}

// parseKcat parses the output of kcat -J: one JSON object for each record. Its headers are a flat list of names and
// values.
func parseKcat(r io.Reader) ([]events.Record, error) {
	var records []events.Record
	for d := json.NewDecoder(r); ; {
		var line struct {
			Topic     string
			Partition int32
			Offset    int64
			TS        int64
			Headers   []*string
			Key       *string
			Payload   *string
		}
		err := d.Decode(&line)
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return nil, err
		}
		if len(line.Headers)%2 != 0 {
			return nil, fmt.Errorf("%s/%d/%d: %d header names and values", line.Topic, line.Partition, line.Offset, len(line.Headers))
		}
		record := events.Record{
			Topic: line.Topic, Partition: line.Partition, Offset: line.Offset, Time: time.UnixMilli(line.TS),
			Key: optional(line.Key), Value: optional(line.Payload),
		}
		for i := 0; i < len(line.Headers); i += 2 {
			if line.Headers[i] == nil {
				return nil, fmt.Errorf("%s/%d/%d: a header without a name", line.Topic, line.Partition, line.Offset)
			}
			record.Headers = append(record.Headers, events.Header{Key: *line.Headers[i], Value: optional(line.Headers[i+1])})
		}
		records = append(records, record)
	}
}

func optional(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}
