package logreader

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waybill-run/waybill/internal/kafka"
)

// ErrNoLeader is the error of a leaderless partition.
var ErrNoLeader error = kerr.LeaderNotAvailable

// UnavailableError says that some partitions of a topic can't be read at the moment, most often because no broker
// leads them.
type UnavailableError struct {
	Topic      string
	Partitions []int32 // ascending
	Err        error
}

func (e *UnavailableError) Error() string {
	if errors.Is(e.Err, ErrNoLeader) {
		return fmt.Sprintf("no broker leads partition %s of %s at the moment: start the brokers that have it, which kafka-topics.sh --describe --unavailable-partitions names", partitionList(e.Partitions), e.Topic)
	}
	return fmt.Sprintf("the brokers return no records of partition %s of %s: %v", partitionList(e.Partitions), e.Topic, e.Err)
}

// Unwrap returns the brokers' error.
func (e *UnavailableError) Unwrap() error { return e.Err }

// partitionList joins partitions with commas.
func partitionList(ps []int32) string {
	text := fmt.Sprint(ps[0])
	for _, p := range ps[1:] {
		text += fmt.Sprintf(", %d", p)
	}
	return text
}

// LeaderlessError returns an *UnavailableError with the leaderless ones among some partitions of a topic (nil: all).
// Without any it returns err.
func LeaderlessError(ctx context.Context, adm *kadm.Client, topic string, partitions []int32, err error) error {
	meta, failed := kafka.Metadata(ctx, adm, topic)
	if failed != nil {
		return err
	}
	var without []int32
	for p, state := range meta.Topics[topic].Partitions {
		if state.Leader < 0 && (partitions == nil || slices.Contains(partitions, p)) {
			without = append(without, p)
		}
	}
	if len(without) == 0 {
		return err
	}
	slices.Sort(without)
	return &UnavailableError{Topic: topic, Partitions: without, Err: ErrNoLeader}
}
