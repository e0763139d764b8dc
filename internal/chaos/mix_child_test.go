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

// indexChild is the role that keeps timelines.
const indexChild = "index"

// handler is what an agent does: Service is the folder of a service, or the URL
// of one.
func (s *childSpec) handler() (agent.Handler, error) {
	if !strings.HasPrefix(s.Service, "http") {
		return service{s.Service}, nil
	}
	return httpagent.New(httpagent.Config{URL: s.Service})
}

// fullDiskLook is how often a process looks whether its disk is full.
const fullDiskLook = 50 * time.Millisecond

// disk is the file system of a child's stores: full as long as a file of the name
// FullDisk exists. Empty: the machine's own.
func (s *childSpec) disk() projections.FS {
	if s.FullDisk == "" {
		return nil
	}
	d := &diskLimit{flag: s.FullDisk}
	return errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(d.refuse))
}

// diskLimit knows whether the disk is full.
type diskLimit struct {
	flag string

	mu     sync.Mutex
	looked time.Time
	full   bool
}

// refuse is the error of what needs room on a disk that has none.
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
