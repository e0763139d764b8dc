package schedulerworker

// RefreshMetadata makes a worker look for added partitions now, instead of after metadataAgeMax.
func (l *Worker) RefreshMetadata() { l.session.Client().ForceMetadataRefresh() }

// Unfenced exports unfenced, which converts the error of a fenced producer.
func (l *Worker) Unfenced(err error) error { return l.unfenced(err) }
