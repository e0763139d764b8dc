package kafka

// RefreshMetadata has a lane look for partitions that were added now, and not in
// metadataAgeMax.
func (l *Lane) RefreshMetadata() { l.session.Client().ForceMetadataRefresh() }

// Unfenced is what a lane makes of the error of a fenced producer.
func (l *Lane) Unfenced(err error) error { return l.unfenced(err) }

func (f fate) String() string { return [...]string{"retried", "refused", "fenced", "hopeless"}[f] }
