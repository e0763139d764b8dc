//go:build !race

package projections_test

const oneIn = 1
