//go:build race

package projections_test

import "flag"

// oneIn reduces the number of random histories with the race detector, which is ten times as slow. It finds races in a
// few of them. All are tried without it.
const oneIn = 8

func init() {
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
}
