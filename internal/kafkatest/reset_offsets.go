package kafkatest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-run/waybill/internal/suite"
)

// Reset is an operator's method of setting a group's offsets.
type Reset string

// The methods. Each is an option of kafka-consumer-groups, which writes no offset metadata.
const (
	ToLatest      Reset = "--reset-offsets --to-latest"
	ToEarliest    Reset = "--reset-offsets --to-earliest"
	ByDuration    Reset = "--reset-offsets --by-duration PT0S"
	ShiftBy       Reset = "--reset-offsets --shift-by 2"
	DeleteOffsets Reset = "--delete-offsets"
	DeleteGroup   Reset = "--delete"
)

// Resets returns all methods.
func Resets() []Reset {
	return []Reset{ToLatest, ToEarliest, ByDuration, ShiftBy, DeleteOffsets, DeleteGroup}
}

// ResetGroup sets the offsets of a group without members. It sends the same requests as kafka-consumer-groups, because
// the broker's jars don't contain that tool.
func (b *Broker) ResetGroup(t testing.TB, group string, how Reset, topics ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	if err := b.resetGroup(ctx, kadm.NewClient(b.Client(t)), group, how, topics); err != nil {
		t.Fatalf("%s of group %s on the %s broker: %v", how, group, b.Kind, err)
	}
}

func (b *Broker) resetGroup(ctx context.Context, admin *kadm.Client, group string, how Reset, topics []string) error {
	switch how {
	case DeleteGroup:
		_, err := admin.DeleteGroup(ctx, group)
		return err
	case DeleteOffsets:
		set := kadm.TopicsSet{}
		ends, err := admin.ListEndOffsets(ctx, topics...)
		ends.Each(func(o kadm.ListedOffset) { set.Add(o.Topic, o.Partition) })
		if err == nil {
			_, err = admin.DeleteOffsets(ctx, group, set)
		}
		return err
	default: // offsets are committed, below
	}
	list := admin.ListEndOffsets
	if how == ToEarliest {
		list = admin.ListStartOffsets
	}
	listed, err := list(ctx, topics...)
	if err != nil {
		return err
	}
	at := listed.Offsets()
	if how == ShiftBy {
		committed, err := admin.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		at.Each(func(o kadm.Offset) {
			if c, ok := committed.Lookup(o.Topic, o.Partition); ok && c.At >= 0 {
				o.At = min(o.At, c.At+2)
				at.Add(o)
			}
		})
	}
	return admin.CommitAllOffsets(ctx, group, at)
}
