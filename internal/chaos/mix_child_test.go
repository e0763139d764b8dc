package chaos

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/waybill-run/waybill/agent"
	httpagent "github.com/waybill-run/waybill/agent/http"
	"github.com/waybill-run/waybill/projections"
)

// indexChild is the role that keeps the index.
const indexChild = "index"

// handler returns the agent's handler. Service is the directory of a service, or the URL of one.
func (s *childSpec) handler() (agent.Handler, error) {
	if !strings.HasPrefix(s.Service, "http") {
		return service{s.Service}, nil
	}
	return httpagent.New(httpagent.Config{URL: s.Service})
}

// fullDiskLook is the interval at which a process checks whether its disk is full.
const fullDiskLook = 50 * time.Millisecond

// disk returns the file system of a child's stores. It is full while the file FullDisk exists. If FullDisk is empty, it
// is the machine's own.
func (s *childSpec) disk() projections.FS {
	if s.FullDisk == "" {
		return nil
	}
	d := &diskLimit{flag: s.FullDisk}
	return errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(d.refuse))
}

// diskLimit reports whether the disk is full.
type diskLimit struct {
	flag string

	mu     sync.Mutex
	looked time.Time
	full   bool
}

// refuse returns an error for operations that need space on a full disk.
func (d *diskLimit) refuse(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpMkdirAll, errorfs.OpFilePreallocate, errorfs.OpFileWrite, errorfs.OpFileWriteAt:
	default:
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Sub(d.looked) > fullDiskLook {
		_, err := os.Stat(d.flag)
		d.full, d.looked = err == nil, now
	}
	if !d.full {
		return nil
	}
	return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
}
