//go:build !race

package projections_test

func seeds(n uint64) uint64 { return n }
