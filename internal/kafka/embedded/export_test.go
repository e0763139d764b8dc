package embedded

import "time"

// SetCleanInterval sets how often expired records are deleted.
func (o *Options) SetCleanInterval(interval time.Duration) { o.cleanInterval = interval }
