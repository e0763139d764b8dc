package local

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// endingLog is a slog.Handler that drops lines once ended is set. After a disk has failed the broker is closed under the
// roles, and what they would log of that, such as lost brokers, isn't the cause.
type endingLog struct {
	slog.Handler
	ended *atomic.Bool
}

// Enabled implements slog.Handler.
func (h endingLog) Enabled(ctx context.Context, level slog.Level) bool {
	return !h.ended.Load() && h.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h endingLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return endingLog{h.Handler.WithAttrs(attrs), h.ended}
}

// WithGroup implements slog.Handler.
func (h endingLog) WithGroup(name string) slog.Handler {
	return endingLog{h.Handler.WithGroup(name), h.ended}
}
