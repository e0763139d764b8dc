package instance

import (
	"context"
	"fmt"

	"github.com/waybill-run/waybill/scheduler"
)

// Catalog returns the definitions that were applied. It returns once they are read, and they stay up to date.
func (n *Instance) Catalog(ctx context.Context) (*scheduler.CompiledDefinitions, error) {
	if err := n.followDefinitions(ctx); err != nil {
		return nil, fmt.Errorf("read the workflow definitions: %w", err)
	}
	return n.catalog.CompiledDefinitions, nil
}
