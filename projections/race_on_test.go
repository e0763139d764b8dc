//go:build race

package projections_test

import "flag"

// With the race detector everything takes ten times as long or more, and it looks for what
// happens beside random histories: fewer are tried. All are tried without it.

func seeds(n uint64) uint64 { return (n + 7) / 8 }

func init() {
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
}
