package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/index"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/workflow"
)

// fileSource indexes an exported file. It knows where in the file each event is.
type fileSource struct {
	*fileHistory
	name   string // as it was given
	file   *os.File
	places map[int32][]filePlace

	definitions []*workflow.Definition // given with the file
	served      bool                   // its console has a socket
}

// filePlace is the place of an event in a file.
type filePlace struct{ offset, position int64 }

// openFileSource opens a file; "-" is standard input, of which it makes a temporary copy.
func openFileSource(path string, stdin io.Reader, note io.Writer) (s *fileSource, err error) {
	s = &fileSource{fileHistory: &fileHistory{path: path, note: note}, name: path, places: map[int32][]filePlace{}}
	if path == "-" {
		if s.file, err = os.CreateTemp("", "waybill-file-"); err != nil {
			return nil, fmt.Errorf("copy standard input: %w", err)
		}
		s.path = s.file.Name()
		if _, err = io.Copy(s.file, stdin); err != nil {
			s.close()
			return nil, fmt.Errorf("copy standard input: %w", err)
		}
	} else if s.file, err = os.Open(path); err != nil {
		return nil, exit(exitUsage, "--file: %w", err)
	}
	if err = s.each(nil); err != nil { // reads the head
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *fileSource) close() {
	_ = s.file.Close() // only read: an error on close loses nothing
	if s.path != s.name {
		_ = os.Remove(s.path) // if this fails, the system cleans its temporary directory
	}
}

func (s *fileSource) identity(context.Context) (projections.Identity, error) {
	return projections.Identity{ClusterID: "file", Namespace: s.Head().Namespace, Partitions: s.Head().Partitions}, nil
}

func (s *fileSource) history() eventSource { return s.fileHistory }

func (s *fileSource) missing(string) string { return " in " + s.name }

// open hands the file's events to the index.
func (s *fileSource) open(ctx context.Context, c *localConsole, ps []int32) (index.Log, <-chan struct{}, error) {
	for _, p := range ps {
		if _, _, err := c.index.StartOffset(ctx, "", p); err != nil {
			return nil, nil, err
		}
	}
	l := newIndexLog()
	ctx, l.stop = context.WithCancel(ctx)
	l.reading.Go(func() {
		if err := s.index(ctx, l, ps); err != nil {
			l.send(ctx, indexBatch{err: err})
		}
	})
	return l, l.applied, nil
}

// fileBatch is how many events of a file are handed to the index at once.
const fileBatch = 1000

func (s *fileSource) index(ctx context.Context, l *indexLog, ps []int32) error {
	reached, batch := map[int32]int64{}, []events.Record{}
	for _, p := range ps {
		reached[p] = 0
	}
	err := s.Read(ctx, "", func(r *events.Record) error {
		if _, wanted := reached[r.Partition]; !wanted {
			return nil
		}
		s.places[r.Partition] = append(s.places[r.Partition], filePlace{r.Offset, s.reader.Position()})
		reached[r.Partition] = r.Offset + 1
		if batch = append(batch, *r); len(batch) < fileBatch {
			return nil
		}
		if !l.send(ctx, indexBatch{records: batch}) {
			return ctx.Err()
		}
		batch = batch[:0]
		return nil
	}, nil)
	if err == nil && !(l.send(ctx, indexBatch{records: batch}) && l.send(ctx, indexBatch{reached: reached})) {
		err = ctx.Err()
	}
	return err
}

func (s *fileSource) ports(*localConsole) (console.Log, console.Cluster) {
	return fileLog{s}, fileCluster{s.definitions}
}

// fileLog is the log of a console of a file. The file has events only.
type fileLog struct{ s *fileSource }

func (l fileLog) ReadAt(ctx context.Context, p int32, offsets []int64) (found []events.Record, _ []console.Corruption, err error) {
	for _, offset := range offsets {
		i, is := slices.BinarySearchFunc(l.s.places[p], offset, func(at filePlace, offset int64) int { return int(at.offset - offset) })
		if !is {
			continue
		}
		r, err := l.s.Head().ReadAt(l.s.file, l.s.places[p][i].position)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", l.s.name, err)
		}
		found = append(found, r)
	}
	return found, nil, ctx.Err()
}

func (l fileLog) Ends(context.Context) (map[int32]int64, error) {
	ends := map[int32]int64{}
	for p := range l.s.Head().Partitions {
		ends[p] = 0
		if all := l.s.places[p]; len(all) > 0 {
			ends[p] = all[len(all)-1].offset + 1
		}
	}
	return ends, nil
}

func (l fileLog) Settled(ctx context.Context) (map[int32]int64, error) { return l.Ends(ctx) }

func (fileLog) Follow(map[int32]int64) (console.Stream, error)            { return idleStream{}, nil }
func (fileLog) Submit(context.Context, events.Record) error               { return errReadOnly }
func (fileLog) Write(context.Context, ...events.Record) error             { return errReadOnly }
func (fileLog) Waiting(context.Context, string) (*console.Waiting, error) { return nil, nil }

func (fileLog) Control(context.Context, *events.Control, events.Record) (*events.Answer, error) {
	return nil, errReadOnly
}

func (fileLog) Alerts(_ context.Context, from console.TopicPosition, _ func(*events.Record)) (console.TopicPosition, error) {
	return from, nil
}

func (fileLog) Deadletters(_ context.Context, from console.TopicPosition, _ func(*events.Record)) (console.TopicPosition, error) {
	return from, nil
}

// fileCluster is the cluster of a console of a file: nothing is known of it but the definitions that were given.
type fileCluster struct{ definitions []*workflow.Definition }

func (fileCluster) Agents(context.Context) ([]consoleapi.Agent, error) { return nil, nil }

func (fileCluster) Agent(context.Context, string) (replay.AgentState, error) {
	return replay.AgentState{}, console.ErrUnknownAgent
}

func (fileCluster) Scheduling(context.Context) (map[int32]console.Scheduling, error) { return nil, nil }
func (fileCluster) ReadWorkflows(context.Context) error                              { return nil }

func (fileCluster) ApplyDefinition(context.Context, *workflow.Definition, events.By) (bool, error) {
	return false, errReadOnly
}
