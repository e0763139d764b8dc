package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

// faultLogMax bounds the errors that Close returns.
const faultLogMax = 10

// faultLog receives kfake's log, the only place where kfake reports a failed write. To the client, kfake answers
// UNKNOWN_SERVER_ERROR, and to its retry of the same batch, success. It confirms group offsets, producer ids, topics and
// the ends of transactions although it couldn't write them, and appends behind the part of an entry that it could. So
// the first failed write ends the process within that write: nothing is confirmed that isn't on disk, and the part of an
// entry stays the last one of its file, which the next start removes. Apache Kafka also stops if its only log directory
// fails.
type faultLog struct {
	dir        string      // the data directory
	endProcess func(error) // Options.EndProcess

	mu      sync.Mutex
	serving bool    // Start has succeeded
	failed  error   // the first failed write before
	errs    []error // what wasn't written at shutdown
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
		if err := fileError(args); err != nil {
			l.fail(err)
		}
	default: // nobody reads them
	}
}

// fileError returns the file error among the arguments of a log line, or nil. It includes the file's path.
func fileError(args []any) error {
	for _, a := range args {
		var file *fs.PathError
		if err, is := a.(error); is && errors.As(err, &file) {
			return file
		}
	}
	return nil
}

// fail ends the process because of a failed write. Until Start has succeeded, it keeps the error for Start.
func (l *faultLog) fail(err error) {
	err = l.diskError(err)
	l.mu.Lock()
	serving := l.serving
	if !serving && l.failed == nil {
		l.failed = err
	}
	l.mu.Unlock()
	if !serving {
		return
	}
	if l.endProcess != nil {
		l.endProcess(err)
	}
	panic(err)
}

// diskError says what failed and what to do.
func (l *faultLog) diskError(err error) error {
	do := "Check the disk and its permissions, then start again"
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		do = "Free space for the directory, then start again"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		do = "Raise the limit of open files, then start again"
	}
	return fmt.Errorf("the embedded broker's log in %s failed, so the process ends: %w. No acknowledged record is lost. %s", l.dir, err, do)
}

// serve makes each further failed write end the process. It returns the first failed write before.
func (l *faultLog) serve() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serving = l.failed == nil
	return l.failed
}

// writeError returns the first failed write before serve.
func (l *faultLog) writeError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// err returns the errors that kfake logged at level error, at most faultLogMax: data that was not written at shutdown.
func (l *faultLog) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}
