package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// flagForms describe the valid values of flags, by the type of the flag.
var flagForms = map[string]string{
	"int": "a whole number", "int16": "a whole number", "int32": "a whole number", "int64": "a whole number",
	"uint": "a whole number of 0 or more", "uint16": "a whole number of 0 or more", "uint32": "a whole number of 0 or more", "uint64": "a whole number of 0 or more",
	"float64":  "a number",
	"bool":     "true or false",
	"duration": "a duration such as 500ms, 10s, 30m or 1h30m",
}

// flagFault replaces the Go library's error for a flag's value by a description of valid values.
func flagFault(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	f := invalid.GetFlag()
	form, known := flagForms[f.Value.Type()]
	switch {
	case known && errors.Is(err, strconv.ErrRange):
		form = "out of range: must be " + form
	case known && errors.Is(err, errNotDecimal) && strings.ContainsAny(invalid.GetValue(), "0123456789"):
		form = "must be " + form + " in decimal digits, without leading zeros"
	case known:
		form = "must be " + form
	default:
		form = invalid.Unwrap().Error()
	}
	return fmt.Errorf("--%s %q: %s", f.Name, invalid.GetValue(), form)
}
