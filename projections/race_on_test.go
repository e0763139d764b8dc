//go:build race

package projections_test

import "flag"

// With the race detector everything takes ten times as long or more, and it looks for what
// happens beside random histories: of these one in so many is tried. All are tried without it.
const oneIn = 8

func init() {
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
}
