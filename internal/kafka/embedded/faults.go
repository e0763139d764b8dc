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
	writeFailedEvery = 10 * time.Second
)

// faultLog keeps the errors that kfake can only log: what could not be written at its
// end, and why a client's write was refused.
type faultLog struct {
	tell func(error) // of a write that failed; may be nil

	mu     sync.Mutex
	errs   []error
	failed error // the last write that did
	told   time.Time
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
		if err := failedWrite(args); err != nil {
			l.failsToWrite(err)
		}
	}
}

// failedWrite is the error of a file among what is logged, which names the file.
func failedWrite(args []any) error {
	for _, a := range args {
		var file *fs.PathError
		if err, is := a.(error); is && errors.As(err, &file) && !errors.Is(err, fs.ErrNotExist) {
			return file
		}
	}
	return nil
}

func (l *faultLog) failsToWrite(err error) {
	l.mu.Lock()
	l.failed = err
	now := time.Now()
	tell := l.tell != nil && now.Sub(l.told) >= writeFailedEvery
	if tell {
		l.told = now
	}
	l.mu.Unlock()
	if tell {
		l.tell(l.write())
	}
}

// write is the last write that failed; nil: none did.
func (l *faultLog) write() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		return nil
	}
	return fmt.Errorf("the embedded broker can't write: %w; make room on that disk, or mend it", l.failed)
}

// err is what could not be written for good.
func (l *faultLog) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}
