package registry

import (
	"context"
	"fmt"
	"slices"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// Deprecate writes a definition again with d in a header. changed reports whether it wasn't so before.
func Deprecate(ctx context.Context, cfg kafka.Config, name string, version int, d *events.Deprecation) (changed bool, err error) {
	err = kafkaadmin.ChangeDefinitions(ctx, cfg, func(all []events.Record) (write []events.Record, err error) {
		write, err = planDeprecate(cfg.Namespace, all, name, version, d)
		changed = len(write) > 0
		return write, err
	})
	return changed, err
}

func planDeprecate(ns events.Namespace, all []events.Record, name string, version int, d *events.Deprecation) ([]events.Record, error) {
	key := events.DefinitionKey(name, version)
	had := findVersion(all, name, version)
	if had.first == nil {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, key)
	}
	was := events.DeprecationOf(had.last)
	if was.Applies() == d.Deprecated {
		return nil, nil
	}
	now := *d
	if now.AppliedAt = had.last.Time; was != nil {
		now.AppliedAt = was.AppliedAt
	}
	r := Record(ns, key, had.first.Value)
	r.Headers = append(r.Headers, appliedHeaders(had.last)...)
	r.Headers = append(r.Headers, now.Header())
	return []events.Record{r}, nil
}

// appliedHeaders returns the headers that say who applied a definition and why.
func appliedHeaders(r *events.Record) []events.Header {
	return slices.DeleteFunc(slices.Clone(r.Headers), func(h events.Header) bool {
		return h.Key != events.HeaderBy && h.Key != events.HeaderByClaimed && h.Key != events.HeaderWhy
	})
}
