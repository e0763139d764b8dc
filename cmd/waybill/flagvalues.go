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

// labels is the value of --label. A label's value is everything after the first "=", including commas, quotes
// and further "=".
type labels map[string]string

// Set implements pflag.Value.
func (l *labels) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q is not NAME=VALUE", text)
	}
	if _, twice := (*l)[name]; twice {
		return fmt.Errorf("label %q is given twice", name)
	}
	if *l == nil {
		*l = map[string]string{}
	}
	(*l)[name] = value
	return nil
}

// Append, Replace and GetSlice implement pflag.SliceValue: the flag may be given several times.
func (l *labels) Append(text string) error { return l.Set(text) }

// Replace implements pflag.SliceValue.
func (l *labels) Replace(texts []string) error {
	*l = nil
	for _, text := range texts {
		if err := l.Set(text); err != nil {
			return err
		}
	}
	return nil
}

// GetSlice implements pflag.SliceValue.
func (l *labels) GetSlice() []string {
	all := make([]string, 0, len(*l))
	for _, name := range slices.Sorted(maps.Keys(*l)) {
		all = append(all, name+"="+(*l)[name])
	}
	return all
}

// String implements pflag.Value.
func (l *labels) String() string { return strings.Join(l.GetSlice(), "\n") }

// Type implements pflag.Value.
func (l *labels) Type() string { return "NAME=VALUE" }

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
