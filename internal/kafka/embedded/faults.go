package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

const (
	faultLogMax = 10
	// A disk that is full fails thousands of writes in a second.
	writeFailedInterval = 10 * time.Second
)

// faultLog keeps the errors that kfake can only log: what could not be written at its
// end, and why a client's write was refused.
type faultLog struct {
	writeFailed func(error) // of a write that failed; may be nil

	mu           sync.Mutex
	errs         []error
	lastWriteErr error // the last write that did
	reportedAt   time.Time
}

// Logf implements kfake.Logger.
func (l *faultLog) Logf(level kfake.LogLevel, format string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.errs) < faultLogMax {
			l.errs = append(l.errs, fmt.Errorf(format, args...))
		}
	case kfake.LogLevelWarn:
		if err := writeErrorIn(args); err != nil {
			l.recordWriteError(err)
		}
	}
}

// failedWrite is the error of a file among what is logged, which names the file.
func writeErrorIn(args []any) error {
	for _, a := range args {
		var file *fs.PathError
		if err, is := a.(error); is && errors.As(err, &file) && !errors.Is(err, fs.ErrNotExist) {
			return file
		}
	}
	return nil
}

func (l *faultLog) recordWriteError(err error) {
	l.mu.Lock()
	l.lastWriteErr = err
	now := time.Now()
	tell := l.writeFailed != nil && now.Sub(l.reportedAt) >= writeFailedInterval
	if tell {
		l.reportedAt = now
	}
	l.mu.Unlock()
	if tell {
		l.writeFailed(l.writeError())
	}
}

// write is the last write that failed; nil: none did.
func (l *faultLog) writeError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastWriteErr == nil {
		return nil
	}
	return fmt.Errorf("the embedded broker can't write: %w; make room on that disk, or mend it", l.lastWriteErr)
}

// err is what could not be written for good.
func (l *faultLog) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}
