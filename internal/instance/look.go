package instance

import (
	"context"
	"fmt"

	"github.com/waybill-run/waybill/scheduler"
)

// Catalog is the definitions that were applied, followed from now on; those that
// were there are in it when it returns.
func (n *Instance) Catalog(ctx context.Context) (*scheduler.CompiledDefinitions, error) {
	if err := n.follow(ctx); err != nil {
		return nil, fmt.Errorf("read the workflow definitions: %w", err)
	}
	return n.catalog.CompiledDefinitions, nil
}
