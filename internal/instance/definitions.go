package instance

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/scheduler"
)

// Catalog returns the definitions that were applied. It returns once they are read, and they stay up to date.
func (n *Instance) Catalog(ctx context.Context) (*scheduler.CompiledDefinitions, error) {
	if err := n.followDefinitions(ctx); err != nil {
		return nil, fmt.Errorf("read the workflow definitions: %w", err)
	}
	return n.catalog.CompiledDefinitions, nil
}

// DefinitionsChanged returns when this process read a record of the definitions last; zero: it doesn't follow them.
func (n *Instance) DefinitionsChanged() time.Time {
	if at := n.definitionsChanged.Load(); at != nil {
		return *at
	}
	return time.Time{}
}
