//go:build synctests

package sim

import (
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is the file system of a life. It can be full.
type disk struct {
	vfs.FS
	l *life
}

func (d *disk) Unwrap() vfs.FS { return d.FS }

func (d *disk) full() error {
	d.l.p.mu.Lock()
	defer d.l.p.mu.Unlock()
	if d.l.p.full {
		return syscall.ENOSPC
	}
	return nil
}

func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.full(); err != nil {
		return nil, err
	}
	return d.file(d.FS.Create(name, c))
}

func (d *disk) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return d.file(d.FS.OpenReadWrite(name, c, opts...))
}

func (d *disk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.file(d.FS.ReuseForWrite(from, to, c))
}

func (d *disk) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &diskFile{f, d}, nil
}

type diskFile struct {
	vfs.File
	d *disk
}

func (f *diskFile) Write(b []byte) (int, error) {
	if err := f.d.full(); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

func (f *diskFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.d.full(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, at)
}
