package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/workflow"
)

// ErrConflict is wrapped by Apply if the version has another body, or had one that tasks still use.
var ErrConflict = errors.New("a version never changes")

// ErrNotFound is wrapped by Delete if the definition doesn't exist.
var ErrNotFound = errors.New("no such definition")

// Apply writes a definition unless it exists, and creates the request topics that its agents lack. existed reports
// whether the same definition was there before.
func Apply(ctx context.Context, cfg kafka.Config, d *workflow.Definition) (existed bool, err error) {
	return ApplyBy(ctx, cfg, d, events.By{})
}

// ApplyBy is Apply that also writes who applies the definition and why, in headers of its record.
func ApplyBy(ctx context.Context, cfg kafka.Config, d *workflow.Definition, by events.By) (existed bool, err error) {
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		return false, err
	}
	defer admin.Close()
	err = kafkaadmin.ChangeDefinitions(ctx, cfg, func(all []events.Record) (write []events.Record, err error) {
		if write, existed, err = planApply(cfg.Namespace, all, d); err != nil {
			return nil, err
		}
		// Also for an existing definition: its topic may have been deleted.
		for _, name := range d.Agents() {
			if _, err := admin.CreateRequestTopic(ctx, name, events.DefaultPartitions); err != nil {
				return nil, fmt.Errorf("create the request topic of agent %s: %w", name, err)
			}
		}
		for i := range write {
			write[i].Headers = append(write[i].Headers, headersOf(by)...)
		}
		return write, nil
	})
	return existed, err
}

// headersOf returns the headers that say who applied a definition.
func headersOf(by events.By) (headers []events.Header) {
	for _, h := range []struct{ name, value string }{{events.HeaderBy, by.Who}, {events.HeaderByClaimed, by.Claimed}, {events.HeaderWhy, by.Why}} {
		if h.value != "" {
			headers = append(headers, events.Header{Key: h.name, Value: []byte(h.value)})
		}
	}
	return headers
}

// planApply returns what to write to a topic that has the records all, so that d is valid; nothing if it is already.
func planApply(ns events.Namespace, all []events.Record, d *workflow.Definition) (write []events.Record, existed bool, err error) {
	had, body := findVersion(all, d.Name, d.Version), d.JSON()
	switch {
	case had.first != nil && !sameBody(had.first.Value, body):
		return nil, false, &conflictError{fmt.Sprintf("%s already exists with another body; use a new version (version: %d)", d.Key(), had.newest+1)}
	case had.first == nil && had.kept != nil && !sameBody(had.kept.Value, body):
		return nil, false, &conflictError{fmt.Sprintf("%s was deleted, and its tasks still use its other body; use a new version (version: %d)", d.Key(), had.newest+1)}
	case had.first != nil && sameBody(had.last.Value, body):
		return nil, true, nil
	}
	r := Record(ns, d.Key(), d.Stored())
	if had.first != nil {
		if was := events.DeprecationOf(had.first); was != nil {
			r.Headers = append(r.Headers, was.Header())
		}
	}
	return []events.Record{r}, had.first != nil, nil
}

// conflictError is an ErrConflict whose message says all.
type conflictError struct{ text string }

func (e *conflictError) Error() string { return e.text }
func (e *conflictError) Unwrap() error { return ErrConflict }

// Delete writes a tombstone for a definition. The caller has checked that no open task has it.
func Delete(ctx context.Context, cfg kafka.Config, name string, version int) error {
	return kafkaadmin.ChangeDefinitions(ctx, cfg, func(all []events.Record) ([]events.Record, error) {
		return planDelete(cfg.Namespace, all, name, version)
	})
}

func planDelete(ns events.Namespace, all []events.Record, name string, version int) ([]events.Record, error) {
	key := events.DefinitionKey(name, version)
	if had := findVersion(all, name, version); had.first == nil {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, key)
	}
	return []events.Record{Record(ns, key, nil)}, nil
}

// Record is the record of a definition; without a body it is a tombstone.
func Record(ns events.Namespace, key string, body []byte) events.Record {
	return events.Record{Topic: ns.Definitions(), Partition: -1, Key: []byte(key), Value: body,
		Headers: events.CloudHeaders(events.TypeDefinition, string(ns)+"workflow", key)}
}

// versionRecords are the records of one version. A client that dies between write and check leaves two bodies: the
// first is valid, and the last is what remains after compaction.
type versionRecords struct {
	first, last *events.Record // since the last tombstone; nil: none
	kept        *events.Record // the copy that schedulers keep of a deleted body; nil: none
	newest      int            // highest version of the workflow: this one, or any that was ever written
}

func findVersion(all []events.Record, name string, version int) (v versionRecords) {
	v.newest = version
	key := events.DefinitionKey(name, version)
	for i := range all {
		r := &all[i]
		of, kept, is := events.ParseDefinitionKey(string(r.Key))
		if !is {
			continue
		}
		if text, found := strings.CutPrefix(of, name+"/"); found {
			if n, err := strconv.Atoi(text); err == nil { // otherwise a foreign key
				v.newest = max(v.newest, n)
			}
		}
		switch {
		case of != key:
		case kept && len(r.Value) == 0:
			v.kept = nil
		case kept:
			v.kept = r
		case len(r.Value) == 0:
			v.first, v.last = nil, nil
		default:
			if v.last = r; v.first == nil {
				v.first = r
			}
		}
	}
	return v
}

// sameBody reports whether two bodies are equal after the older one is written as this build writes it.
func sameBody(old, body []byte) bool {
	if d, err := workflow.ParseJSON(old); err == nil {
		old = d.JSON()
	}
	return bytes.Equal(old, body)
}
