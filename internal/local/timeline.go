package local

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/projections"
)

// timelineTimeout bounds the reading of a timeline.
const timelineTimeout = 10 * time.Second

// Timeline reads a task's events from the log, at the offsets that the index stored on disk. It is called after Run: the
// index no longer runs, and the broker still does.
func (s *System) Timeline(ctx context.Context, id string) ([]events.Line, error) {
	ctx, cancel := context.WithTimeout(ctx, timelineTimeout)
	defer cancel()
	partition := events.Partition([]byte(id), s.Partitions)
	places, err := s.storedPlaces(partition, id)
	if err != nil {
		return nil, err
	}
	offsets := make([]int64, len(places))
	for i := range places {
		offsets[i] = places[i].Offset
	}
	restorer, err := logreader.OpenRestorer(s.Kafka, nil)
	if err != nil {
		return nil, err
	}
	defer restorer.Close()
	records, err := restorer.ReadAt(ctx, s.Kafka.Namespace.Events(), partition, offsets, nil)
	lines := make([]events.Line, len(records))
	for i := range records {
		line, lineErr := events.TimelineLine(&records[i])
		lines[i], err = line, errors.Join(err, lineErr)
	}
	return lines, err
}

func (s *System) storedPlaces(partition int32, id string) (_ []projections.Place, err error) {
	store, err := projections.Open(filepath.Join(s.DataDir, projections.ViewTimelines),
		projections.Identity{ClusterID: s.ClusterID, Namespace: s.Kafka.Namespace, Partitions: s.Partitions, View: projections.ViewTimelines}, projections.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	v, err := store.Timelines(partition)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return v.Timeline(id), nil
}
