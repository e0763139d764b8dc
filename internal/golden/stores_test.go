package golden

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/tally"
	"github.com/waybill-run/waybill/projections"
)

// extract unpacks a generation's data directory into a folder of the test.
func extract(t *testing.T, generation string) string {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }() // what it holds is in the folder
	in := tar.NewReader(readGzip(t, filepath.Join("testdata", generation, "data.tar.gz")))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return root.Name()
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			err = root.MkdirAll(h.Name, 0o755)
		} else {
			err = root.MkdirAll(filepath.Dir(h.Name), 0o755)
			if err == nil {
				err = extractFile(root, h.Name, in)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func extractFile(root *os.Root, name string, from io.Reader) error {
	f, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// view is a partition of a projection.
type view interface {
	Next() int64
	Apply(r *events.Record) error
	Digest() string
	Stopped() []projections.Stop
	Close()
}

func openView(t *testing.T, s *projections.Store, name string, p int32) view {
	t.Helper()
	var v view
	var err error
	switch name {
	case projections.ViewTasks:
		v, err = s.Tasks(p)
	case projections.ViewDeadlines:
		v, err = s.Deadlines(p)
	default:
		v, err = s.Timelines(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// openStore opens a store of `waybill up`, old or new.
func openStore(t *testing.T, dir, view string) *projections.Store {
	t.Helper()
	id := projections.Identity{ClusterID: clusterOf(t, dir), Namespace: events.DefaultNamespace, Partitions: partitions, View: view}
	s, err := projections.Open(dir, id, projections.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t *testing.T, s *projections.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// clusterOf is the id of the cluster whose log a store is of; of an empty folder: any.
func clusterOf(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "identity.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return "any"
	}
	var id struct {
		Cluster string `json:"cluster_id"`
	}
	if err == nil {
		err = json.Unmarshal(text, &id)
	}
	if err != nil || id.Cluster == "" {
		t.Fatalf("the cluster of %s: %q, %v", dir, text, err)
	}
	return id.Cluster
}

// TestOldStoresOpenAndContinue: the Pebble directories of an old build equal a
// rebuild by today's from the log, at the offset that they hold, and after what
// the log has beyond it; and so they do once they were written by today's build
// and opened again.
func TestOldStoresOpenAndContinue(t *testing.T) {
	for _, generation := range generations(t) {
		t.Run(generation, func(t *testing.T) {
			log := history(readLog(t, generation))
			dir := extract(t, generation)
			digests, rest := 0, 0
			for _, state := range []string{"earlier", "state"} {
				for _, name := range []string{projections.ViewTasks, projections.ViewDeadlines, projections.ViewTimelines} {
					old := openStore(t, filepath.Join(dir, state, name), name)
					rebuilt := openStore(t, t.TempDir(), name)
					for p := range int32(partitions) {
						rest += goesOn(t, old, rebuilt, name, p, log[p])
						digests += 2
					}
					closeStore(t, old)
					closeStore(t, rebuilt)
					digests += reopened(t, filepath.Join(dir, state, name), name, log)
				}
			}
			if rest == 0 {
				t.Error("no store was behind the log: that old stores go on was not shown")
			}
			tally.Add(t, "digests of an old build's stores equal a rebuild", digests)
			t.Logf("%d events applied to old stores", rest)
		})
	}
}

// goesOn compares a partition of an old store with a rebuild, at its offset and
// at the end of the log, and returns how many events were in between.
func goesOn(t *testing.T, old, rebuilt *projections.Store, name string, p int32, log []events.Record) (rest int) {
	t.Helper()
	a, b := openView(t, old, name, p), openView(t, rebuilt, name, p)
	defer a.Close()
	defer b.Close()
	if a.Next() == 0 && name != projections.ViewTimelines { // an index of another format is read again
		t.Errorf("%s of partition %d: the old store starts at %d", name, p, a.Next())
	}
	split := 0
	for split < len(log) && log[split].Offset < a.Next() {
		split++
	}
	apply(t, b, log[:split])
	same(t, "as it was", name, p, a, b)
	apply(t, a, log[split:])
	apply(t, b, log[split:])
	same(t, "at the log's end", name, p, a, b)
	return len(log) - split
}

// reopened compares a store that today's build went on with, once more.
func reopened(t *testing.T, dir, name string, log map[int32][]events.Record) (digests int) {
	t.Helper()
	s, rebuilt := openStore(t, dir, name), openStore(t, t.TempDir(), name)
	defer closeStore(t, s)
	defer closeStore(t, rebuilt)
	for p := range int32(partitions) {
		a, b := openView(t, s, name, p), openView(t, rebuilt, name, p)
		if end := log[p][len(log[p])-1].Offset + 1; a.Next() != end {
			t.Errorf("%s of partition %d: opened again at %d, the log's end is %d", name, p, a.Next(), end)
		}
		apply(t, b, log[p])
		same(t, "opened again", name, p, a, b)
		a.Close()
		b.Close()
		digests++
	}
	return digests
}

func apply(t *testing.T, v view, log []events.Record) {
	t.Helper()
	for i := range log {
		if err := v.Apply(&log[i]); err != nil {
			t.Fatal(err)
		}
	}
}

func same(t *testing.T, when, name string, p int32, a, b view) {
	t.Helper()
	if got, want := a.Digest(), b.Digest(); got != want {
		t.Errorf("%s of partition %d, %s: the digest is %s, that of a rebuild %s", name, p, when, got, want)
	}
	if stops := append(a.Stopped(), b.Stopped()...); len(stops) > 0 {
		t.Errorf("%s of partition %d, %s: tasks were stopped: %v", name, p, when, stops)
	}
}
