package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/console/onkafka"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/index"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/workflow"
)

// localConsole is a console in this process, for a command that found no other. It answers from an index that it
// builds first, of the log or of an exported file. Its handler is called without a socket.
type localConsole struct {
	source  indexSource
	console *console.Console
	follow  bool          // it goes on to apply what is written
	lost    replay.Losses // what of the log isn't in the index, because it is corrupt

	index     *index.Index
	store     *projections.Store
	dir       string // of the store
	temporary bool   // dir is removed at the end
	stop      context.CancelFunc
	indexing  sync.WaitGroup

	stopBatches func()
	omitted     *replay.Omission // tasks that lists leave out; nil: none
}

// indexSource is what a local console indexes: the log or a file.
type indexSource interface {
	// identity identifies the events.
	identity(ctx context.Context) (projections.Identity, error)
	// open starts to read partitions, each from the index's StartOffset. applied is closed when the index has
	// applied all events that there are.
	open(ctx context.Context, c *localConsole, ps []int32) (log index.Log, applied <-chan struct{}, err error)
	// ports are what the console needs.
	ports(c *localConsole) (console.Log, console.Cluster)
	// history reads the events again, to find what corruption may have lost.
	history() eventSource
	// missing says what to do if a task isn't there.
	missing(id string) string
}

// indexOptions say what a local console indexes.
type indexOptions struct {
	partitions []int32 // none: the query needs no index
	follow     bool    // apply events that are written later
	// batches: the console has batches. It sends the commands of the one with this id; "": of none.
	batches bool
	batch   string
}

// askLocalConsole answers a query by a console in this process.
func askLocalConsole(ctx context.Context, of indexSource, indexed func(partitions int32) indexOptions, dataDir string, ask func(*apiClient) error) (err error) {
	c := &localConsole{source: of}
	defer func() { err = cmp.Or(err, c.close()) }()
	id, err := of.identity(ctx)
	if err != nil {
		return err
	}
	o := indexed(id.Partitions)
	if c.follow = o.follow; len(o.partitions) > 0 {
		if err := c.openStore(id, dataDir); err != nil {
			return err
		}
	}
	c.index = index.New(c.store, func(int32, int64) {})
	if len(o.partitions) > 0 {
		if err := c.buildIndex(ctx, o.partitions); err != nil {
			return err
		}
	}
	log, cluster := of.ports(c)
	file := ""
	var intakes console.Intakes // of a file: there are none
	switch of := of.(type) {
	case *fileSource:
		if of.served {
			file = of.name
		}
	case logSource:
		intakes = &onkafka.Intakes{Kafka: of.cfg, Admin: of.admin}
	}
	cfg := console.Config{File: file, ClusterID: id.ClusterID, Namespace: id.Namespace, Partitions: id.Partitions, Now: time.Now,
		Index: &lossyIndex{c.index, c}, Log: log, Cluster: cluster, Intakes: intakes}
	batches, err := c.newBatches(&cfg, &o)
	if err != nil {
		return err
	}
	c.console = console.New(cfg)
	if err := c.runBatches(ctx, batches); err != nil {
		return err
	}
	client, err := consoleapi.New(consoleapi.Config{URL: "http://localhost", Transport: handlerTransport{c.console}, ReconnectFor: stallTimeout, Explain: c.explain})
	if err != nil {
		return err
	}
	return ask(&apiClient{Client: client, local: c})
}

// explain gives an error of the console its exit code. It doesn't name the console.
func (c *localConsole) explain(err error) error {
	p, is := errors.AsType[*consoleapi.Problem](err)
	if !is {
		return err
	}
	if what, missing := p.NoTask(); missing {
		return exit(exitNotFound, "%w", &missingTaskError{p, what + c.source.missing(what)})
	}
	return withExitCode(p.Status, p)
}

// openStore opens the store in a data directory, or in a temporary one.
func (c *localConsole) openStore(id projections.Identity, dataDir string) (err error) {
	if c.dir = dataDir; dataDir == "" {
		if c.dir, err = os.MkdirTemp("", "waybill-index-"); err != nil {
			return fmt.Errorf("make a directory for the index: %w; --data-dir names another", err)
		}
		c.temporary = true
	}
	id.View = projections.ViewTimelines
	c.store, err = projections.Open(filepath.Join(c.dir, id.View), id, projections.Options{Fatal: func(err error) {
		if c.temporary {
			_ = os.RemoveAll(c.dir) // the disk may be full
		}
		endProcess(err)
	}})
	return err
}

// buildIndex starts the index, and waits until it has reached the end of the events.
func (c *localConsole) buildIndex(ctx context.Context, ps []int32) error {
	ctx, c.stop = context.WithCancel(ctx)
	log, applied, err := c.source.open(ctx, c, ps)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	c.indexing.Go(func() { ended <- c.index.Run(ctx, log, "", nil) })
	c.indexing.Go(func() { c.store.Run(ctx) })
	select {
	case <-applied:
		return nil
	case err := <-ended:
		if errors.Is(err, projections.ErrForeign) {
			err = fmt.Errorf("%w; delete the directory %s, or name another", err, c.dir)
		}
		return err
	}
}

// close ends the index. It keeps the directory of --data-dir, unless the index lacks corrupt events: the next command
// must report them, too.
func (c *localConsole) close() (err error) {
	if c.console != nil {
		c.console.Close()
	}
	if c.stopBatches != nil {
		c.stopBatches()
	}
	if c.stop != nil {
		c.stop()
	}
	c.indexing.Wait()
	if c.index != nil {
		c.index.Close() // if its source wasn't opened
	}
	if c.store != nil {
		err = c.store.Close()
	}
	switch {
	case c.temporary:
		err = errors.Join(err, os.RemoveAll(c.dir))
	case len(c.lost.List()) > 0:
		err = errors.Join(err, os.RemoveAll(filepath.Join(c.dir, projections.ViewTimelines)))
	}
	return err
}

// findLeftOut finds the tasks that a list leaves out, because events of them are or may be corrupt, and prints them.
// Other consoles leave out nothing: they don't read past a corrupt range.
func (c *apiClient) findLeftOut(ctx context.Context, note io.Writer, concerns func(id string, t *events.Task) bool) (*replay.Omission, error) {
	if c.local == nil {
		return &replay.Omission{}, nil
	}
	left, err := c.local.lost.FindOmission(ctx, c.local.source.history(), "", concerns)
	if err == nil {
		warnLeftOut(note, left)
	}
	return left, err
}

// lossyIndex is an index of events with corrupt ranges. A range that has an event of a task counts as one, so that
// whoever reads the task's events finds the corruption.
type lossyIndex struct {
	*index.Index
	of *localConsole
}

// List leaves out tasks whose events are or may be corrupt, if the command says so.
func (x *lossyIndex) List(ctx context.Context, ps []int32, f projections.Filter, after projections.Cursor, limit int) (projections.Page, error) {
	page, err := x.Index.List(ctx, ps, f, after, limit)
	if x.of.omitted != nil {
		page.Tasks = slices.DeleteFunc(page.Tasks, func(s events.Summary) bool { return x.of.omitted.Contains(s.ID) })
	}
	return page, err
}

func (x *lossyIndex) Find(p int32, task string) (f projections.Found, begun bool) {
	f, begun = x.Index.Find(p, task)
	for _, l := range x.of.lost.List() {
		if l.Partition == p && slices.Contains(l.Tasks, task) {
			f.Places = append(f.Places, projections.Place{Offset: l.Offset})
		}
	}
	return f, begun
}

// logSource indexes the log.
type logSource struct{ *logbook }

func (s logSource) identity(ctx context.Context) (id projections.Identity, err error) {
	err = s.askBrokers(ctx, func(ctx context.Context) error {
		cluster, err := s.admin.ClusterID(ctx)
		id = projections.Identity{ClusterID: cluster, Namespace: s.cfg.Namespace, Partitions: s.partitions}
		return err
	})
	return id, err
}

func (s logSource) open(ctx context.Context, c *localConsole, ps []int32) (index.Log, <-chan struct{}, error) {
	l, err := openIndexLog(ctx, s.logbook, c, ps)
	if err != nil {
		return nil, nil, err
	}
	return l, l.applied, nil
}

func (s logSource) ports(c *localConsole) (console.Log, console.Cluster) {
	log := onkafka.Reader{Config: s.cfg, Admin: s.admin, Restorer: s.reader, Partitions: s.partitions}
	return &localLog{log, s.logbook, c}, &localCluster{Groups: onkafka.Groups{Admin: s.admin, Namespace: s.cfg.Namespace}, l: s.logbook}
}

func (logSource) missing(id string) string { return "; " + whereToLook(id) }

func (s logSource) history() eventSource {
	return &logHistory{logbook: s.logbook, allowLeaderless: true}
}

// localLog is the log of a local console.
type localLog struct {
	onkafka.Reader
	l       *logbook
	console *localConsole
}

// errReadOnly is the error of commands to a local console, which are never sent.
var errReadOnly = errors.New("a console within a command is read-only")

func (*localLog) Submit(context.Context, events.Record) error { return errReadOnly }

func (*localLog) Write(context.Context, ...events.Record) error { return errReadOnly }

func (*localLog) Control(context.Context, *events.Control, events.Record) (*events.Answer, error) {
	return nil, errReadOnly
}

// Ends are where the committed events end, or, of an index that doesn't follow the log, where the log ended when it was
// read.
func (l *localLog) Ends(ctx context.Context) (map[int32]int64, error) {
	if l.console.follow {
		return l.Settled(ctx)
	}
	ends := map[int32]int64{}
	for p, at := range l.console.index.Progress() {
		ends[p] = at.Next
	}
	return ends, nil
}

// Alerts also reports records that aren't alerts.
func (l *localLog) Alerts(ctx context.Context, from console.TopicPosition, fn func(*events.Record)) (console.TopicPosition, error) {
	return l.Reader.Alerts(ctx, from, func(r *events.Record) {
		if _, ok := l.l.readAlert(r); ok {
			fn(r)
		}
	})
}

// localCluster is the cluster of a local console. It lists no definitions, and reads them only if one is asked for.
type localCluster struct {
	onkafka.Groups
	l           *logbook
	once        sync.Once
	definitions []registry.Definition
}

func (*localCluster) Workflows() []console.Workflow { return nil }

// Definition returns a definition from the log; nil: there is none, or the definitions can't be read.
func (c *localCluster) Definition(name string, version int) (d *workflow.Definition, deleted bool) {
	c.once.Do(func() { c.definitions, _ = c.l.allDefinitions(context.Background()) })
	if found := registry.Find(c.definitions, fmt.Sprintf("%s/%d", name, version)); found != nil {
		return found.Definition, found.Deleted
	}
	return nil, false
}

func (*localCluster) ReadWorkflows(context.Context) error { return nil }

func (*localCluster) ApplyDefinition(context.Context, *workflow.Definition, events.By) (bool, error) {
	return false, errReadOnly
}
