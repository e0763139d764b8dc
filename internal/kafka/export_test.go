package kafka

// RefreshMetadata has a worker look for partitions that were added now, and not in
// metadataAgeMax.
func (l *Worker) RefreshMetadata() { l.session.Client().ForceMetadataRefresh() }

func (f errorClass) String() string {
	return [...]string{"retried", "refused", "fenced", "hopeless"}[f]
}

// Unfenced is what a worker makes of the error of a fenced producer.
func (l *Worker) Unfenced(err error) error { return l.unfenced(err) }
