package point

import (
	"context"
	"slices"
	"testing"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/supervisor"
)

// calls is what was called, in order: points and what they stand beside.
type calls struct{ made []string }

func (c *calls) hook(p Point) { c.made = append(c.made, string(p)) }

func (c *calls) call(name string) { c.made = append(c.made, name) }

type fakeLog struct {
	scheduler.Client
	*calls
	records   []events.Record
	committed bool
}

func (f *fakeLog) Poll(context.Context) ([]events.Record, error) {
	f.call("poll")
	return f.records, nil
}

func (f *fakeLog) Commit(context.Context, []events.Record) (bool, error) {
	f.call("commit")
	return f.committed, nil
}

type fakeHistory struct {
	scheduler.History
	*calls
}

func (f fakeHistory) Read(context.Context, string, int32, int64, func([]events.Record) error) (int64, error) {
	f.call("read")
	return 0, nil
}

type fakeTasks struct {
	scheduler.Tasks
	*calls
}

func (f fakeTasks) Accept([]*events.Task, events.PartitionState, int64) { f.call("accept") }

type fakeOutbox struct{ *calls }

func (f fakeOutbox) Send(context.Context, ...events.Record) error {
	f.call("send")
	return nil
}

type fakeSession struct {
	agent.Session
	*calls
}

func (f fakeSession) Poll(context.Context) ([]events.Record, error) {
	f.call("poll")
	return make([]events.Record, 1), nil
}

func (f fakeSession) Send(context.Context, events.Record) error {
	f.call("send")
	return nil
}

type fakeHolder struct{ fakeSession }

func (fakeHolder) HeldContext(int32) context.Context { return context.Background() }

func (fakeHolder) MayHaveStarted(int32, int64) bool { return false }

func (f fakeHolder) SendAsOwner(context.Context, int32, int64, events.Record) error {
	f.call("send as owner")
	return nil
}

func TestEachSeamIsWhereItSays(t *testing.T) {
	ctx := t.Context()
	for _, tt := range []struct {
		name string
		run  func(c *calls)
		want []string
	}{
		{"a poll with records", func(c *calls) {
			_, _ = Seams(c.hook).Worker(&fakeLog{calls: c, records: make([]events.Record, 1)}).Poll(ctx)
		}, []string{"poll", "polled"}},
		{"a poll without", func(c *calls) { _, _ = Seams(c.hook).Worker(&fakeLog{calls: c}).Poll(ctx) }, []string{"poll"}},
		{"a commit", func(c *calls) { _, _ = Seams(c.hook).Worker(&fakeLog{calls: c, committed: true}).Commit(ctx, nil) },
			[]string{"commit", "committed"}},
		{"a rollback", func(c *calls) { _, _ = Seams(c.hook).Worker(&fakeLog{calls: c}).Commit(ctx, nil) }, []string{"commit"}},
		{"a restore", func(c *calls) { _, _ = Seams(c.hook).History(fakeHistory{calls: c}).Read(ctx, "", 0, 0, nil) },
			[]string{"assigned", "read"}},
		{"new state", func(c *calls) { Seams(c.hook).Tasks(0, fakeTasks{calls: c}).Accept(nil, events.PartitionState{}, 0) },
			[]string{"accept", "applied"}},
		{"recoveries", func(c *calls) {
			_ = Seams(c.hook).Outbox(supervisor.Outbox(fakeOutbox{c})).Send(ctx)
		}, []string{"due", "send"}},
		{"requests", func(c *calls) { _, _ = Seams(c.hook).Sessions(fakeSession{calls: c}).Poll(ctx) }, []string{"poll", "polled"}},
		{"a reply", func(c *calls) { _ = Seams(c.hook).Sessions(fakeSession{calls: c}).Send(ctx, events.Record{}) },
			[]string{"taken", "send"}},
		{"a reply without effect", func(c *calls) {
			_ = Seams(c.hook).Sessions(fakeHolder{fakeSession{calls: c}}).(agent.PartitionHolder).SendAsOwner(ctx, 0, 0, events.Record{})
		}, []string{"taken", "send as owner"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &calls{}
			if tt.run(c); !slices.Equal(c.made, tt.want) {
				t.Errorf("called %q, want %q", c.made, tt.want)
			}
		})
	}
}

// An agent asks its session whether it still has a partition; a session that
// can tell must go on telling.
func TestASessionThatHoldsStillDoes(t *testing.T) {
	c := &calls{}
	if _, ok := Seams(c.hook).Sessions(fakeHolder{fakeSession{calls: c}}).(agent.PartitionHolder); !ok {
		t.Error("the seam hides Held")
	}
	if _, ok := Seams(c.hook).Sessions(fakeSession{calls: c}).(agent.PartitionHolder); ok {
		t.Error("the seam makes up a Held")
	}
}
