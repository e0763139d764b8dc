package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// A transfer takes a few seconds, and reports how far it is.
const (
	transferSteps     = 6
	transferStepTime  = time.Second
	percentOfTransfer = 100 / transferSteps
)

// transfer moves money between banks. It reports progress after each step of the way, and takes effect at the end.
func (w *Services) transfer(ctx context.Context, c Call) (json.RawMessage, error) {
	for step := 1; step <= transferSteps; step++ {
		timer := time.NewTimer(transferStepTime)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		if c.Progress == nil {
			continue
		}
		if err := c.Progress(map[string]any{"percent": step * percentOfTransfer, "bank": fmt.Sprintf("bank %d of %d", step, transferSteps)}); err != nil {
			return nil, err
		}
	}
	if err := w.effect(c, false); err != nil {
		return nil, err
	}
	return output(c), nil
}
