package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"

	"github.com/spf13/pflag"
)

// profiles are the files of CPU and allocation profiles; empty: none.
type profiles struct{ cpu, memory string }

func (o *profiles) flags(f *pflag.FlagSet, whose string) {
	f.StringVar(&o.cpu, "cpuprofile", "", "write a CPU profile of "+whose+" to this file")
	f.StringVar(&o.memory, "memprofile", "", "write an allocation profile of "+whose+" to this file")
}

// start starts the requested profiles. The returned function writes them.
func (o *profiles) start() (stop func() error, err error) {
	var cpu *os.File
	if o.cpu != "" {
		if cpu, err = os.Create(o.cpu); err != nil {
			return nil, fmt.Errorf("--cpuprofile: %w", err)
		}
		if err := pprof.StartCPUProfile(cpu); err != nil {
			return nil, errors.Join(fmt.Errorf("--cpuprofile: %w", err), cpu.Close())
		}
	}
	return func() error {
		if cpu != nil {
			pprof.StopCPUProfile()
			if err := cpu.Close(); err != nil {
				return fmt.Errorf("--cpuprofile: %w", err)
			}
		}
		return o.writeAllocations()
	}, nil
}

func (o *profiles) writeAllocations() error {
	if o.memory == "" {
		return nil
	}
	f, err := os.Create(o.memory)
	if err != nil {
		return fmt.Errorf("--memprofile: %w", err)
	}
	runtime.GC() // the profile is as of the last collection
	if err := errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close()); err != nil {
		return fmt.Errorf("--memprofile: %w", err)
	}
	return nil
}
