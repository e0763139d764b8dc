package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

const (
	faultLogMax = 10
	// writeFailedInterval is the minimum time between two calls of WriteFailed. A full disk fails thousands of writes
	// per second.
	writeFailedInterval = 10 * time.Second
)

// faultLog collects errors that kfake reports only in its log: writes that failed at shutdown, and the cause of a
// refused client write.
type faultLog struct {
	writeFailed func(error) // called for a failed write; may be nil

	mu           sync.Mutex
	errs         []error
	lastWriteErr error // error of the last failed write
	reportedAt   time.Time
}

// Logf implements kfake.Logger.
func (l *faultLog) Logf(level kfake.LogLevel, format string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		l.recordLoss(fmt.Errorf(format, args...), strings.HasPrefix(format, markerFailed))
	case kfake.LogLevelWarn:
		if err := writeErrorIn(args); err != nil {
			l.recordWriteError(err)
		}
	default: // nobody reads them
	}
}

// markerFailed begins kfake's log line about the marker of a transaction that it couldn't write. kfake nevertheless
// commits the group offsets and confirms the commit to the client.
const markerFailed = "endTx: failed to persist control batch"

// recordLoss keeps err for Close. It reports a lost marker immediately, because a kill would make the loss permanent.
func (l *faultLog) recordLoss(err error, marker bool) {
	l.mu.Lock()
	if len(l.errs) < faultLogMax {
		l.errs = append(l.errs, err)
	}
	l.mu.Unlock()
	if marker && l.writeFailed != nil {
		l.writeFailed(fmt.Errorf("a transaction, if it was committed, will be rolled back at the next start after a kill: %w", err))
	}
}

// writeErrorIn returns the file error among the arguments of a log line, or nil. It includes the file's path.
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

// writeError returns the error of the last failed write, or nil.
func (l *faultLog) writeError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastWriteErr == nil {
		return nil
	}
	return fmt.Errorf("the embedded broker can't write: %w; free space on that disk, or repair it", l.lastWriteErr)
}

// err returns the errors that kfake logged at level error, at most faultLogMax: data that was not written for good.
func (l *faultLog) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}
