// Package listener completes listeners: the structs of funcs by which a role is observed, and of which a user sets
// those that it needs.
package listener

import "reflect"

// Complete returns a copy of a listener in which each nil func does nothing, so that the role calls them without a
// check. l may be nil. The funcs return nothing.
func Complete[L any](l *L) *L {
	full := new(L)
	if l != nil {
		*full = *l
	}
	fields := reflect.ValueOf(full).Elem()
	for i := range fields.NumField() {
		if f := fields.Field(i); f.Kind() == reflect.Func && f.IsNil() {
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { return nil }))
		}
	}
	return full
}
