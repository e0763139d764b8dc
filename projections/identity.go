package projections

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
)

// The views, one for each directory.
const (
	ViewTasks     = "tasks"
	ViewDeadlines = "deadlines"
	ViewTimelines = "timelines"
)

// Format is the format of keys and values that this build writes.
const Format = 1

// Identity identifies the content of a store's directory. It is written when the directory is first used and compared
// at each open, since offsets of another cluster's log would give a wrong state.
type Identity struct {
	ClusterID  string           `json:"cluster_id"`
	Namespace  events.Namespace `json:"namespace"`
	Partitions int32            `json:"partitions"` // of the events topic
	View       string           `json:"view"`       // ViewTasks, ViewDeadlines or ViewTimelines
	Format     int              `json:"format"`     // 0: Format
}

// The errors that a refusal wraps.
var (
	// ErrForeign says that the directory belongs to something else.
	ErrForeign = errors.New("the directory holds something else")
	// ErrInUse says that another store, usually of another process, has the directory open.
	ErrInUse = errors.New("the directory is in use")
	// ErrCorrupt says that the data on disk is corrupt.
	ErrCorrupt = errors.New("the store is corrupt")
	// ErrClosed says that the store or the view was closed.
	ErrClosed = errors.New("closed")
)

// creatingFile is written before Pebble's files, and renamed to identityFile once they exist. So a directory with files
// and neither of these two isn't Waybill's, and a store whose creation crashed differs from one that lost its files.
const (
	identityFile = "identity.json"
	creatingFile = "identity.creating"
)

func (id Identity) validate() error {
	var faults []string
	if id.ClusterID == "" {
		faults = append(faults, "no cluster id: a store must know whose log it reflects")
	}
	if id.Namespace == "" {
		faults = append(faults, "no namespace")
	}
	if id.Partitions < 1 {
		faults = append(faults, fmt.Sprintf("%d partitions", id.Partitions))
	}
	if viewLetters[id.View] == 0 {
		faults = append(faults, fmt.Sprintf("view %q: %s, %s or %s", id.View, ViewTasks, ViewDeadlines, ViewTimelines))
	}
	if len(faults) > 0 {
		return fmt.Errorf("identity: %s", strings.Join(faults, "; "))
	}
	return nil
}

// differs lists the differences between the stored identity and the wanted one.
func (id Identity) differs(stored Identity) string {
	var d []string
	add := func(what string, have, want any) {
		if have != want {
			d = append(d, fmt.Sprintf("%s %v, not %v", what, have, want))
		}
	}
	add("cluster", stored.ClusterID, id.ClusterID)
	add("namespace", stored.Namespace, id.Namespace)
	add("partition count", stored.Partitions, id.Partitions)
	add("view", stored.View, id.View)
	return strings.Join(d, ", ")
}

// remedy is the advice in the errors about a directory that can't be opened.
const remedy = "give another --data-dir, or delete this one: what it holds is rebuilt from the log"

// checkDir decides whether the directory may be opened. fresh reports that it has no complete store, so Pebble may
// create one.
func (id Identity) checkDir(fs vfs.FS, dir string) (fresh bool, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return false, fmt.Errorf("projections: list %s: %w", dir, err)
	}
	var has, creating, other bool
	for _, n := range names {
		switch n {
		case identityFile:
			has = true
		case creatingFile:
			creating = true
		case "LOCK", "lost+found":
		default:
			other = true
		}
	}
	switch {
	case has:
		return false, id.compare(fs, dir)
	case other && !creating:
		return false, fmt.Errorf("projections: %s isn't empty and has no %s: it isn't Waybill's; give an empty --data-dir: %w", dir, identityFile, ErrForeign)
	}
	return true, nil
}

func (id Identity) compare(fs vfs.FS, dir string) error {
	path := fs.PathJoin(dir, identityFile)
	stored, err := readIdentity(fs, path)
	if err != nil {
		return fmt.Errorf("projections: %s: %w; %s: %w", path, err, remedy, ErrCorrupt)
	}
	if d := id.differs(stored); d != "" {
		return fmt.Errorf("projections: %s belongs to %s; %s: %w", dir, d, remedy, ErrForeign)
	}
	switch {
	case stored.Format > id.Format:
		return fmt.Errorf("projections: %s has format %d, this build knows %d: run the newer waybill that wrote it, or %s: %w", dir, stored.Format, id.Format, remedy, ErrForeign)
	case stored.Format < id.Format:
		return fmt.Errorf("projections: %s has the older format %d, this build writes %d; %s: %w", dir, stored.Format, id.Format, remedy, ErrForeign)
	}
	return nil
}

func readIdentity(fs vfs.FS, path string) (Identity, error) {
	var id Identity
	f, err := fs.Open(path)
	if err != nil {
		return id, err
	}
	data, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return id, err
	}
	return id, json.Unmarshal(data, &id)
}

// markCreating records that a store is being created.
func (id Identity) markCreating(fs vfs.FS, dir string) error {
	data, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("projections: identity: %w", err)
	}
	if err := writeSynced(fs, fs.PathJoin(dir, creatingFile), append(data, '\n')); err != nil {
		return fmt.Errorf("projections: write the identity of %s: %w", dir, err)
	}
	return syncDir(fs, dir)
}

// markCreated records that the store is complete.
func (id Identity) markCreated(fs vfs.FS, dir string) error {
	if err := fs.Rename(fs.PathJoin(dir, creatingFile), fs.PathJoin(dir, identityFile)); err != nil {
		return fmt.Errorf("projections: name the identity of %s: %w", dir, err)
	}
	return syncDir(fs, dir)
}

func writeSynced(fs vfs.FS, path string, data []byte) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// makeDir makes dir and its missing parents, and syncs the new entries. Otherwise a crash may lose the directory with
// its flushed data.
func makeDir(fs vfs.FS, dir string) error {
	missing := dir
	var parents []string
	for {
		_, err := fs.Stat(missing)
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("projections: look at %s: %w", missing, err)
		}
		up := fs.PathDir(missing)
		if up == missing {
			break
		}
		parents = append(parents, up)
		missing = up
	}
	if len(parents) == 0 {
		return nil
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("projections: make %s: %w", dir, err)
	}
	for _, p := range parents {
		if err := syncDir(fs, p); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("projections: open %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("projections: sync %s: %w", dir, err)
	}
	return nil
}
