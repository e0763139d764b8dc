package embedded

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

// stateLogs are the files in which kfake appends the offsets of consumer groups and the ids of producers. An entry is
// a frame: its length and its CRC32C (4 bytes each, little-endian), then length bytes. kfake stops reading at the first
// bad frame, but appends behind it. Nothing behind it would survive another kill.
var stateLogs = []string{"groups.log", "pids.log"}

const (
	frameHeader = 8 // bytes of the length and the checksum
	minFrame    = 2 // bytes of the version, which each frame has
)

// tornLog is a state log whose last write is partial.
type tornLog struct {
	path string
	size int64 // bytes of the whole frames
}

// checkStateLogs returns the corruptions of the state logs, and those with only a partial write at the end. It changes
// nothing. clean is that of checkLog.
func checkStateLogs(dir string, clean bool) (found []*corruption, torn []tornLog, err error) {
	for _, name := range stateLogs {
		path := filepath.Join(dir, name)
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		whole := wholeFrames(raw)
		switch {
		case whole == len(raw):
		case clean || frameFollows(raw[whole:]):
			found = append(found, &corruption{file: path, at: int64(whole)})
		default:
			torn = append(torn, tornLog{path, int64(whole)})
		}
	}
	return found, torn, nil
}

// wholeFrames returns the length of the whole frames at the start of raw.
func wholeFrames(raw []byte) int {
	at := 0
	for {
		n := frameAt(raw[at:])
		if n == 0 {
			return at
		}
		at += n
	}
}

// frameAt returns the length of the frame at the start of raw, or 0 if there is no whole frame.
func frameAt(raw []byte) int {
	if len(raw) < frameHeader+minFrame {
		return 0
	}
	n := int64(binary.LittleEndian.Uint32(raw))
	if n < minFrame || n > int64(len(raw)-frameHeader) {
		return 0
	}
	end := frameHeader + int(n)
	if crc32.Checksum(raw[frameHeader:end], castagnoli) != binary.LittleEndian.Uint32(raw[4:]) {
		return 0
	}
	return end
}

// frameFollows reports whether a whole frame follows the unreadable bytes at the start of raw. Without one, they are
// the partial last write of a killed process.
func frameFollows(raw []byte) bool {
	for at := 1; at < len(raw); at++ {
		if frameAt(raw[at:]) > 0 {
			return true
		}
	}
	return false
}

// cut removes the partial write.
func (t tornLog) cut() error {
	f, err := os.OpenFile(t.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = f.Truncate(t.size)
	if err == nil {
		err = f.Sync()
	}
	return closeFile(f, err)
}
