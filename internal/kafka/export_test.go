package kafka

// RefreshMetadata has a lane look for partitions that were added now, and not in
// metadataAgeMax.
func (l *Lane) RefreshMetadata() { l.session.Client().ForceMetadataRefresh() }
