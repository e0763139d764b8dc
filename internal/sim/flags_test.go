package sim

import (
	"flag"
	"runtime"
)

var (
	seeds    = flag.Int("seeds", 8, "how many seeds are run")
	seed     = flag.Uint64("seed", 1, "the first seed")
	within   = flag.Duration("for", 0, "instead of -seeds: as many as begin within this")
	minutes  = flag.Int("minutes", 5, "simulated minutes of faults in a seed")
	verbose  = flag.Bool("log", false, "a failure shows every line that the processes logged")
	live     = flag.Bool("live", false, "what happens is told when it does")
	parallel = flag.Int("at-once", runtime.NumCPU(), "seeds that are run side by side")
)
