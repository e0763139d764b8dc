package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/verify"
)

// importPartitions is the default of --max-partitions. The file chooses the number of partitions, and an import
// creates every topic with it.
const importPartitions = 1000

type importOptions struct {
	tool
	broken     bool
	partitions int32 // the maximum
}

func newImport() *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import FILE --namespace NAMESPACE",
		Short: "Write an exported file into a namespace of its own",
		Long: `Write the events of a file of 'waybill export' into a namespace of their own, on any cluster. Use it to
look at the history of one cluster on another, with every Waybill command that reads. Each event keeps its
partition, its bytes and its timestamp. The namespace is created with the number of partitions that the
events come from. Everything is written in one transaction, then read back and compared.

The namespace is read-only: no role runs in it but a console, and nothing can be submitted to it. The
command refuses a namespace that exists for another purpose or has events. It also refuses a file that
is incomplete or doesn't verify, unless --broken is given.`,
		Example: `  waybill export --since 24h --out day.jsonl
  waybill import day.jsonl --namespace day.
  waybill task list --namespace day.`,
		Args: arguments("a file that `waybill export` wrote"),
		RunE: func(cmd *cobra.Command, args []string) error { return runImport(cmd, &o, args[0]) },
	}
	o.tool.flags(cmd)
	cmd.Flags().BoolVar(&o.broken, "broken", false, "accept a history that is incomplete or doesn't verify")
	cmd.Flags().Int32Var(&o.partitions, "max-partitions", importPartitions, "refuse a file whose namespace has more partitions; each topic gets as many")
	return cmd
}

// imported is the result of an import as it is printed. Broken counts faults, as verify does.
type imported struct {
	Namespace  events.Namespace `json:"namespace"`
	From       events.Namespace `json:"from"` // namespace of the exported events
	Partitions int32            `json:"partitions"`
	Tasks      int              `json:"tasks"`
	Events     int              `json:"events"`
	Broken     int              `json:"broken"`
}

func runImport(cmd *cobra.Command, o *importOptions, path string) error {
	if err := o.output.check(); err != nil {
		return err
	}
	switch {
	case path == "-":
		return usage("import reads its file twice, so it can't read standard input (-): write it to a file")
	case o.namespace == events.DefaultNamespace:
		return usage("import needs its own --namespace, such as history.")
	}
	m := &importing{cmd: cmd, path: path, file: &fileHistory{path: path, note: cmd.ErrOrStderr()}}
	if err := m.check(o); err != nil {
		return err
	}
	if err := m.create(&o.connection); err != nil {
		return err
	}
	l, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	if err := m.checkEmpty(l); err != nil {
		return err
	}
	if err := m.write(l); err != nil {
		return err
	}
	if err := m.compare(l); err != nil {
		return err
	}
	from := m.file.head()
	v := &imported{l.cfg.Namespace, from.Namespace, from.Partitions, m.report.Tasks, m.report.Events, m.report.Broken}
	return o.printObject(cmd.OutOrStdout(), v, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "%d events of %d tasks are in %[3]s; look at them with `waybill task list --namespace %[3]s`\n", v.Events, v.Tasks, v.Namespace)
		return err
	})
}

// importing is one import.
type importing struct {
	cmd    *cobra.Command
	path   string
	file   *fileHistory
	report *verify.Report // of the file
	sums   digests        // of the file
	waits  sync.Once      // prints the note about the wait once
}

// check verifies the file before anything is created.
func (m *importing) check(o *importOptions) error {
	if err := m.file.each(nil); err != nil {
		return err
	}
	if n := m.file.head().Partitions; n > o.partitions {
		return usage("%s is from a namespace with %d partitions, and each topic would be created with that many; the limit is %d, raise it with --max-partitions", m.path, n, o.partitions)
	}
	options := verify.Options{Namespace: m.file.head().Namespace, Partitions: m.file.head().Partitions, ReplyTolerance: math.MaxInt64, Whole: true}
	c, _, err := checkFile(m.cmd, m.path, options)
	if err != nil {
		return err
	}
	m.report = c.Finish(time.Now())
	if m.report.Broken > 0 && !o.broken {
		return fmt.Errorf("%s has %d faults, the first: %s; `waybill verify --file` shows them, --broken imports it as it is",
			m.path, m.report.Broken, printable(m.report.Faults[0].String()))
	}
	return nil
}

// create creates the namespace. It fails if the namespace is in use.
func (m *importing) create(conn *connection) error {
	admin, err := openAdmin(m.cmd, conn)
	if err != nil {
		return err
	}
	defer admin.Close()
	err = admin.CreateHistory(m.cmd.Context(), m.file.head().Partitions)
	if errors.Is(err, kafka.ErrNotForHistory) {
		return exit(exitRefused, "%w", err)
	}
	return err
}

// checkEmpty refuses a namespace that has events. Records of an interrupted import don't count: they were never
// committed.
func (m *importing) checkEmpty(l *logbook) error {
	_, err := l.read(m.cmd.Context(), l.cfg.Namespace.Events(), kafka.Range{Blocked: ignoreHeld}, func(*events.Record) error {
		return exit(exitRefused, "%w, and %s has events already; use another --namespace, or delete its topics", kafka.ErrNotForHistory, l.cfg.Namespace)
	})
	return err
}

// write writes the file's records in one transaction.
func (m *importing) write(l *logbook) (err error) {
	ctx, topic := m.cmd.Context(), l.cfg.Namespace.Events()
	w, err := kafka.OpenHistoryWriter(ctx, l.cfg)
	if err != nil {
		return l.connectionLost(err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	m.sums = digests{}
	err = m.file.read(ctx, "", func(r *events.Record) error {
		r.Topic = topic
		m.sums.add(r)
		return w.Write(ctx, r)
	}, nil)
	if err != nil {
		return err
	}
	return l.connectionLost(w.Commit(ctx))
}

// compare reads the namespace back and compares it with what was written.
func (m *importing) compare(l *logbook) error {
	back, err := m.readBack(l)
	if err != nil {
		return err
	}
	for p := range m.file.head().Partitions {
		if got, want := back.of(p), m.sums.of(p); got != want {
			return fmt.Errorf("partition %d of %s isn't what was written (digest %.8x, want %.8x): another client wrote there, too; delete its topics and import again",
				p, l.cfg.Namespace.Events(), got, want)
		}
	}
	return nil
}

// readBack reads the namespace to its end. It waits for the end of the import's transaction, before which
// brokers return none of its records.
func (m *importing) readBack(l *logbook) (digests, error) {
	for began := time.Now(); ; {
		back, held := digests{}, atomic.Bool{}
		in := kafka.Range{Blocked: func(int32, int64, int64) { held.Store(true) }}
		_, err := l.read(m.cmd.Context(), l.cfg.Namespace.Events(), in, func(r *events.Record) error {
			back.add(r)
			return nil
		})
		switch {
		case err != nil || !held.Load():
			return back, err
		case time.Since(began) > stallTimeout:
			return nil, fmt.Errorf("what was written to %s can't be read back to its end: a transaction has been open there for %s; "+
				"look for it with `waybill doctor`, then delete the namespace's topics and import again", l.cfg.Namespace.Events(), stallTimeout)
		}
		m.waits.Do(func() {
			fmt.Fprintf(l.note, "waybill: waiting for the end of a transaction in %s\n", l.cfg.Namespace.Events())
		})
	}
}

// digests are hashes of the records of each partition, in order, over all fields that an import keeps.
type digests map[int32]hash.Hash

func (s digests) add(r *events.Record) {
	h := s[r.Partition]
	if h == nil {
		h = sha256.New()
		s[r.Partition] = h
	}
	number := func(v int64) { fmt.Fprintf(h, "%d:", v) }
	field := func(b []byte) {
		number(int64(len(b)))
		h.Write(b)
	}
	number(r.Time.UnixMilli())
	field(r.Key)
	field(r.Value)
	number(int64(len(r.Headers)))
	for i := range r.Headers {
		field([]byte(r.Headers[i].Key))
		field(r.Headers[i].Value)
	}
}

func (s digests) of(p int32) (sum [sha256.Size]byte) {
	if h := s[p]; h != nil {
		h.Sum(sum[:0])
	}
	return sum
}
