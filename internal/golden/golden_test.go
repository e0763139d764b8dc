package golden

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/workflow"
)

const manifest = "testdata/golden.sha256"

// namespace of all generations.
const namespace events.Namespace = events.DefaultNamespace

// TestGoldenIsNeverEdited holds the files against the list of their sums: what
// was written stays what it was, and what is there is in force.
func TestGoldenIsNeverEdited(t *testing.T) {
	listed, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(listed)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		want[name] = sum
	}
	for _, generation := range generations(t) {
		files, err := fs.ReadDir(os.DirFS("testdata"), generation)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name := generation + "/" + f.Name()
			b, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != want[name] {
				t.Errorf("%s has the sum %s, listed is %q; golden files are added, never edited: take it back, and make a new generation", name, got, want[name])
			}
			delete(want, name)
		}
	}
	for name := range want {
		t.Errorf("%s is listed in %s and gone", name, manifest)
	}
}

// TestOldLogFoldsToItsStates: every event that an old build wrote is read and
// folded to the states that the old build itself gave it, every input is taken
// or refused as it was, the checkers of the promises find nothing, and
// everything else on the topics can be read.
func TestOldLogFoldsToItsStates(t *testing.T) {
	for _, generation := range generations(t) {
		t.Run(generation, func(t *testing.T) {
			records := readLog(t, generation)
			states, err := Fold(records, events.DefaultNamespace)
			if err != nil {
				t.Fatal(err)
			}
			recorded, err := ReadStates(readGzip(t, filepath.Join("testdata", generation, "states.jsonl.gz")))
			if err != nil {
				t.Fatal(err)
			}
			faults, err := Compare(recorded, states, 20)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range faults {
				t.Error(f)
			}
			types, n := map[string]bool{}, 0
			for i := range records {
				r := &records[i]
				ceType, _ := r.Header(events.HeaderType)
				if r.Topic != namespace.Events() {
					readable(t, r, ceType)
					continue
				}
				types[ceType] = true
				n++
			}
			for _, f := range check(records).Faults {
				t.Error(f)
			}
			tally.Add(t, "events of an old build, folded as it did", n)
			t.Logf("%d of %d types of event, %d states and inputs", len(types), len(events.Types()), len(recorded))
		})
	}
}

// check holds a log with all its topics against the promises.
func check(records []events.Record) *verify.Report {
	c := verify.New(verify.Options{Partitions: partitions, Inputs: true, Requests: true, Deadletters: true, Alerts: true, Whole: true})
	last := time.Time{}
	for _, feed := range []func(*events.Record){c.Input, func(r *events.Record) {
		if r.Topic == namespace.Events() {
			c.Event(r)
			last = later(last, r.Time)
		}
	}, func(r *events.Record) {
		switch {
		case strings.HasPrefix(r.Topic, namespace.Requests("")):
			c.Request(r)
		case r.Topic == namespace.Deadletters():
			c.Deadletter(r)
		case r.Topic == namespace.Alerts():
			c.Alert(r)
		}
	}} {
		for i := range records {
			feed(&records[i])
		}
	}
	return c.Finish(last)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// readable reads a record that isn't an event. Inputs are Fold's to judge.
func readable(t *testing.T, r *events.Record, ceType string) {
	t.Helper()
	ns := namespace
	var err error
	switch {
	case strings.HasPrefix(r.Topic, ns.Requests("")):
		_, err = events.DecodeRequest(r)
	case r.Topic == ns.Notifications():
		_, err = events.DecodeNotification(r)
	case r.Topic == ns.Alerts():
		_, err = events.DecodeAlert(r)
	case r.Topic == ns.Answers():
		_, err = events.DecodeAnswer(r)
	case r.Topic == ns.Definitions() && strings.Contains(string(r.Key), "/"):
		_, err = workflow.ParseJSON(r.Value)
	}
	if err != nil {
		t.Errorf("%s/%d/%d (%s): %v", r.Topic, r.Partition, r.Offset, ceType, err)
	}
}

// A comparison that can't fail would hold for any build.
func TestCompare(t *testing.T) {
	recorded := func(lines string) []any {
		all, err := ReadStates(strings.NewReader(lines))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	today := []State{{Of: "task a", Stored: []byte(`{"n":9007199254740993,"steps":[{"state":"x","new":1}]}`)}}
	for lines, want := range map[string]string{
		`{"of":"task a","stored":{"n":9007199254740993,"steps":[{"state":"x"}]}}`: "[]",
		`{"of":"task a","stored":{"n":9007199254740992}}`:                         "[task a.stored.n: recorded as 9007199254740992, today 9007199254740993]",
		`{"of":"task a","stored":{"gone":true}}`:                                  "[task a.stored.gone: recorded as true, and not there today]",
		`{"of":"task a","stored":{"steps":[{"state":"x"},{"state":"y"}]}}`:        "[task a.stored.steps: recorded as [map[state:x] map[state:y]], today [map[new:1 state:x]]]",
		`{"of":"task b"}`: "[task b: recorded, and not there today task a: there today, and not recorded]",
	} {
		got, err := Compare(recorded(lines), today, 5)
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s:\ngot  %v (%v)\nwant %s", lines, got, err, want)
		}
	}
}

// What is written is read as it was.
func TestLogRoundTrip(t *testing.T) {
	records := readLog(t, generations(t)[0])
	var b bytes.Buffer
	if err := WriteLog(&b, records); err != nil {
		t.Fatal(err)
	}
	again, err := ReadLog(&b)
	if err != nil {
		t.Fatal(err)
	}
	if len(again) != len(records) {
		t.Fatalf("%d records, want %d", len(again), len(records))
	}
	for i := range records {
		if fmt.Sprint(again[i]) != fmt.Sprint(records[i]) {
			t.Fatalf("got %v, want %v", again[i], records[i])
		}
	}
	if err := WriteLog(&b, []events.Record{{Value: []byte{0xff}}}); err == nil {
		t.Error("a value that isn't UTF-8 was written")
	}
}

func readLog(t *testing.T, generation string) []events.Record {
	t.Helper()
	records, err := ReadLog(readGzip(t, filepath.Join("testdata", generation, "log.jsonl.gz")))
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// history is the events of a log, by partition.
func history(records []events.Record) map[int32][]events.Record {
	all := map[int32][]events.Record{}
	for _, r := range records {
		if r.Topic == namespace.Events() {
			all[r.Partition] = append(all[r.Partition], r)
		}
	}
	return all
}

// readAll reads what is committed of every topic.
func readAll(t *testing.T, cfg kafka.Config) []events.Record {
	t.Helper()
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	topics := []string{namespace.Events(), namespace.Notifications(), namespace.Alerts(), namespace.Answers(), namespace.Deadletters(),
		namespace.Definitions(), "shop.status"}
	for i := range events.Inboxes {
		topics = append(topics, namespace.Inbox(i))
	}
	requests, _, err := admin.RequestTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, agent := range slices.Sorted(maps.Keys(requests)) {
		topics = append(topics, namespace.Requests(agent))
	}
	var all []events.Record
	for _, topic := range topics {
		all = append(all, readTopic(t, cfg, topic)...)
	}
	return all
}

// readTopic reads what is committed of a topic; none if there is no such topic.
func readTopic(t *testing.T, cfg kafka.Config, topic string) []events.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	r, err := logreader.OpenRestorer(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	byPartition := map[int32][]events.Record{}
	if _, err := r.ReadAll(ctx, topic, logreader.Range{}, func(rs []events.Record) error {
		for _, x := range rs {
			byPartition[x.Partition] = append(byPartition[x.Partition], x)
		}
		return nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	var all []events.Record
	for _, p := range slices.Sorted(maps.Keys(byPartition)) {
		all = append(all, byPartition[p]...)
	}
	return all
}

// readGzip opens a compressed file of a generation.
func readGzip(t *testing.T, path string) *gzip.Reader {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // was only read
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", path, err))
	}
	return z
}

// generations are the names of the folders in testdata.
func generations(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		t.Fatal("there are no golden data: they have been deleted")
	}
	return names
}
