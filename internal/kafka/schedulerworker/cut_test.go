package schedulerworker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestInboxThatWasCutOffAndHasGrown restores the log of an inbox's partition from an older copy, and writes records
// until it is longer than before. Records after the cut have offsets that count as read. They must not be skipped
// silently: the partition is not read, and that is reported. It applies to a worker that runs meanwhile, and to one
// that opens later.
func TestInboxThatWasCutOffAndHasGrown(t *testing.T) {
	c := kafkatest.KafkaNodes(t, 1, nil)
	s := newSite(t, kafkatest.FromCluster(c))
	topic, p := s.Inboxes[0], int32(4)
	write := func(from, n int) {
		t.Helper()
		cl := s.Outside(t)
		defer cl.Close()
		records := make([]*kgo.Record, 0, n)
		for i := range n {
			records = append(records, kafkatest.Input(topic, p, fmt.Sprint(from+i)))
		}
		kafkatest.Submit(t, cl, records...)
	}
	take := func(l *schedulerworker.Worker, n int) {
		t.Helper()
		for n > 0 {
			rs := poll(t, l)
			commit(t, l, len(rs), nil)
			n -= len(rs)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	running, later := &positionFaults{}, &positionFaults{}
	cfg := s.worker("running")
	cfg.Listener = running.listener()
	l := openWorker(t, cfg)
	untilAssigned(t, l, testPartitions)
	write(0, 5)
	take(l, 5)
	must(c.Terminate(0))
	dirs, err := filepath.Glob(filepath.Join(c.Dir(), "node1", "*", fmt.Sprintf("%s-%d", topic, p)))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("folders of the partition: %q, %v", dirs, err)
	}
	older := filepath.Join(t.TempDir(), "older")
	must(os.CopyFS(older, os.DirFS(dirs[0])))
	must(c.Restart(t.Context(), 0))
	write(5, 5)
	l.Close() // it may have lost its membership while the broker was down, so another worker continues, as in a scheduler
	l = openWorker(t, cfg)
	untilAssigned(t, l, testPartitions)
	take(l, 5)
	must(c.Terminate(0))
	must(os.RemoveAll(dirs[0]))
	must(os.CopyFS(dirs[0], os.DirFS(older)))
	must(c.Restart(t.Context(), 0))
	write(100, 20)

	var read []string
	until := func(l *schedulerworker.Worker, faults *positionFaults) {
		t.Helper()
		for faults.count("cut "+topic+"/4") == 0 {
			rs, err := l.Poll(t.Context())
			if err != nil {
				t.Logf("the worker ends: %v", err)
				l.Close()
				l = openWorker(t, cfg)
				continue
			}
			for p := range l.Assigned() {
				l.Resume(p, inboxgate.PausedForRestore)
			}
			read = append(read, values(rs)...)
		}
		l.Close()
	}
	until(l, running)
	cfg = s.worker("later")
	cfg.Listener = later.listener()
	until(openWorker(t, cfg), later)
	if len(read) > 0 {
		t.Errorf("read %q of a log that was cut off", read)
	}
	if found := s.positionsFound(t); len(found) != 1 || found[0].Fault != groupmember.PositionCut || found[0].Partition != p {
		t.Errorf("the doctor finds %+v", found)
	}
	admin, err := kafkaadmin.Open(s.Config)
	must(err)
	defer admin.Close()
	must(admin.TrimTopic(t.Context(), topic, "", map[int32]int64{p: 10, 5: 0}))
	if starts, err := admin.StartOffsets(t.Context(), topic); err != nil || starts[p] != 0 {
		t.Errorf("trimmed up to %d (%v), with records that nobody has read", starts[p], err)
	}
	t.Logf("%q, %q", running.all, later.all)
}

func values(rs []events.Record) (all []string) {
	for _, r := range rs {
		all = append(all, string(r.Value))
	}
	return all
}
