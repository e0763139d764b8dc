//go:build race

package projections_test

// seeds is how many of n random histories are tried: with the race detector everything takes
// ten times as long, and it looks for what happens beside them. All are tried without it.
func seeds(n uint64) uint64 { return (n + 3) / 4 }
