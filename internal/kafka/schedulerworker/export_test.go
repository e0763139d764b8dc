package schedulerworker

import "time"

// RefreshMetadata makes a worker look for added partitions now, instead of after metadataAgeMax.
func (l *Worker) RefreshMetadata() { l.session.Client().ForceMetadataRefresh() }

// Unfenced exports unfenced, which converts the error of a fenced producer.
func (l *Worker) Unfenced(err error) error { return l.unfenced(err) }

// AwaitDuplicates sets how long a fenced worker waits for a process that has its name to join. On a busy machine, that
// takes longer than the constant.
func (l *Worker) AwaitDuplicates(within time.Duration) { l.duplicateWithin = within }
