package main

import (
	"slices"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/text"
)

// idArguments checks task ids that are given as arguments. It drops repeated ones.
func idArguments(args []string) (ids []string, err error) {
	for i := range args {
		id, err := idArgument(args[i:])
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// indexTasks says that the partitions of tasks are indexed.
func indexTasks(ids []string) func(int32) indexOptions {
	return func(partitions int32) (o indexOptions) {
		for _, id := range ids {
			if p := events.Partition([]byte(id), partitions); !slices.Contains(o.partitions, p) {
				o.partitions = append(o.partitions, p)
			}
		}
		return o
	}
}

// eachTask calls ask with each id. If tasks don't exist, it goes on, and missing says so.
func eachTask(ids []string, ask func(id string) error) (missing, err error) {
	var absent []error
	for _, id := range ids {
		err := ask(id)
		if _, is := noSuchTask(err); is {
			absent = append(absent, err)
		} else if err != nil {
			return nil, err
		}
	}
	switch len(absent) {
	case 0:
		return nil, nil
	case 1:
		return absent[0], nil
	}
	return exit(exitNotFound, "%w; and %d more of the %d tasks %s found", absent[0], len(absent)-1, len(ids), text.Verb(len(absent)-1, "wasn't", "weren't")), nil
}
