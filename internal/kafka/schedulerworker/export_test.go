package schedulerworker

import "time"

// RefreshMetadata makes a worker look for added partitions now, instead of after metadataAgeMax.
func (w *Worker) RefreshMetadata() { w.session.Client().ForceMetadataRefresh() }

// LastCommit returns when the last transaction was committed, or the worker was opened.
func (w *Worker) LastCommit() time.Time { return w.opened.Add(time.Duration(w.lastCommit.Load())) }

// Unfenced exports unfenced, which converts the error of a fenced producer.
func (w *Worker) Unfenced(err error) error { return w.unfenced(err) }

// AwaitDuplicates sets how long a fenced worker waits for a process that has its name to join. On a busy machine, that
// takes longer than the constant.
func (w *Worker) AwaitDuplicates(within time.Duration) { w.duplicateWithin = within }
