//go:build synctests

package sim

import "github.com/cockroachdb/pebble/v2/vfs"

// disk is the file system of a life. If it is full, the next write ends the process, as a store does.
type disk struct {
	vfs.FS
	l *life
}

func (d *disk) Unwrap() vfs.FS { return d.FS }

// write ends the process if its disk is full. What the dead process writes then is on no disk.
func (d *disk) write() {
	p := d.l.p
	p.mu.Lock()
	full := p.full && p.life == d.l
	p.mu.Unlock()
	if full {
		p.kill(100, restartAfter)
	}
}

func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	d.write()
	f, err := d.FS.Create(name, c)
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
	f.d.write()
	return f.File.Write(b)
}
