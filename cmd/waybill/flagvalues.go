package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// pairs is the value of a repeatable flag whose values are pairs of a name and a value.
type pairs[V any] struct {
	to              *map[string]V
	form, separator string
	add             func(to map[string]V, text string) error
}

// Set implements pflag.Value.
func (p *pairs[V]) Set(text string) error {
	if *p.to == nil {
		*p.to = map[string]V{}
	}
	return p.add(*p.to, text)
}

// Append, Replace and GetSlice implement pflag.SliceValue: the flag may be given several times.
func (p *pairs[V]) Append(text string) error { return p.Set(text) }

// Replace implements pflag.SliceValue.
func (p *pairs[V]) Replace(texts []string) error {
	*p.to = nil
	for _, text := range texts {
		if err := p.Set(text); err != nil {
			return err
		}
	}
	return nil
}

// GetSlice implements pflag.SliceValue.
func (p *pairs[V]) GetSlice() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(*p.to)) {
		all = append(all, fmt.Sprintf("%s=%v", name, (*p.to)[name]))
	}
	return all
}

// String implements pflag.Value.
func (p *pairs[V]) String() string { return strings.Join(p.GetSlice(), p.separator) }

// Type implements pflag.Value.
func (p *pairs[V]) Type() string { return p.form }

// labelPairs is the value of --label. A label's value is everything after the first "=", including commas, quotes and
// further "=".
func labelPairs(to *map[string]string) pflag.Value {
	return &pairs[string]{to, "NAME=VALUE", "\n", func(to map[string]string, text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return fmt.Errorf("%q is not NAME=VALUE", text)
		}
		if _, twice := to[name]; twice {
			return fmt.Errorf("label %q is given twice", name)
		}
		to[name] = value
		return nil
	}}
}

// decimalNumbers matches JSON numbers, with an optional sign.
var decimalNumbers = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// decimal is the value of a numeric flag that accepts decimal digits only. strconv, as pflag calls it, reads
// 010 as 8, 0b11 as 3 and 1_000 as 1000.
type decimal struct{ pflag.Value }

var errNotDecimal = errors.New("not a number in decimal digits, without leading zeros")

// Set implements pflag.Value.
func (d decimal) Set(text string) error {
	if !decimalNumbers.MatchString(text) {
		return errNotDecimal
	}
	return d.Value.Set(text)
}

// decimalFlags makes every numeric flag of every command accept decimal digits only.
func decimalFlags(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		decimalFlags(c)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "int", "int16", "int32", "int64", "uint", "uint16", "uint32", "uint64", "float64":
			f.Value = decimal{f.Value}
		}
	})
}
