package scheduler

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
)

// hanging is a catalog whose read to the end hangs.
type hanging struct {
	*catalog
	hangs *bool
}

func (c hanging) ReadToEndNow(ctx context.Context) error {
	if !*c.hangs {
		return c.catalog.ReadToEndNow(ctx)
	}
	c.reads++
	<-ctx.Done()
	return ctx.Err()
}

// TestUnreadDefinitionsPauseTasksOfOnePartition checks that an unknown workflow isn't refused while the definitions
// can't be read. Only submissions of its partition wait.
func TestUnreadDefinitionsPauseTasksOfOnePartition(t *testing.T) {
	for name, hang := range map[string]bool{"err": false, "hang": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { unreadDefinitions(t, hang) })
		})
	}
}

func unreadDefinitions(t *testing.T, hang bool) {
	s := newSite(t, 2)
	hangs := hang
	s.cfg.Catalog = hanging{s.catalog, &hangs}
	w := s.worker(s.cluster.join(0, 1))
	known, unknown, behind := s.ofPartition(0, "known"), s.ofPartition(0, "unknown"), s.ofPartition(0, "behind")
	s.submit("w", known)
	s.drain(w)

	s.catalog.err, s.catalog.reads = errors.New("no broker"), 0
	told := 0
	s.cfg.Listener.DefinitionsReadFailed = func(error) { told++ }
	s.submit("typo", unknown)
	s.submit("w", behind)
	began, reads := time.Now(), 0
	s.until(w, "the definitions were asked for", func() bool { return s.catalog.reads > reads })
	if took := time.Since(began); took > 2*definitionsReadWithin {
		t.Errorf("asking for them held the worker up for %v", took)
	}
	s.complete("inventory")
	s.until(w, "replies of the partition flow", func() bool { return len(s.events(known)) == len(life) })
	other := s.ofPartition(1, "other")
	s.submit("w", other)
	s.until(w, "the other partition takes tasks", func() bool { return len(s.events(other)) > 0 })
	if s.catalog.reads != 1 || told != 1 || len(s.events(behind)) > 0 || len(s.cluster.all(ns.Deadletters())) > 0 {
		t.Errorf("%d reads, events behind: %v, dead letters: %v", s.catalog.reads, s.events(behind), s.headers(ns.Deadletters(), events.HeaderReason))
	}
	s.until(w, "they are asked for again", func() bool { return s.catalog.reads == 2 })

	s.catalog.err, hangs = nil, false
	s.drain(w)
	if got := s.headers(ns.Deadletters(), events.HeaderReason); !slices.Equal(got, []string{"unknown_workflow"}) || len(s.events(behind)) == 0 {
		t.Errorf("dead letters %v, events behind: %v", got, s.events(behind))
	}
	w.close(func() {})
}

// TestRequestTopicsCannotBeListed checks that unavailable brokers aren't reported as the refusal of a record. The
// failed read of the metadata is reported instead.
func TestRequestTopicsCannotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		s.submitMany(1)
		ctx, cancel := context.WithCancel(t.Context())
		list, listed, away := s.cfg.RequestTopics, false, errors.New("no broker answers")
		s.cfg.RequestTopics = func(ctx context.Context) (map[string]int32, map[string][]int32, error) {
			if listed {
				return nil, nil, away
			}
			listed = true
			return list(ctx)
		}
		s.cfg.Listener.RecordRefused = func(topic string, err error) {
			t.Errorf("a record of %s is said to be refused: %v", topic, err)
			cancel()
		}
		s.cfg.Listener.RequestTopicsFailed = func(err error) {
			if !errors.Is(err, away) {
				t.Error(err)
			}
			cancel()
		}
		if err := Run(ctx, s.cfg); err != nil {
			t.Error(err)
		}
	})
}
