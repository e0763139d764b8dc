package main

import (
	"time"

	"github.com/spf13/cobra"
)

// timeRange is the flags --since and --until.
type timeRange struct {
	sinceFlag
	until string
}

func (s *timeRange) flags(cmd *cobra.Command, what string) {
	s.sinceFlag.flags(cmd, what+" since")
	cmd.Flags().StringVar(&s.until, "until", "", what+" before: a duration back from now (10m), or an RFC 3339 time")
	commandLineOnly(cmd.Flags(), "until")
}

// bounds returns the instants of the flags; zero if a flag isn't set.
func (s *timeRange) bounds(now time.Time) (from, until time.Time, err error) {
	if from, err = s.instant(now); err != nil {
		return from, until, err
	}
	if until, err = parseInstant("--until", s.until, now); err != nil {
		return from, until, err
	}
	if s.until != "" && until.Before(from) {
		return from, until, usage("--until %s is before --since %s", s.until, s.text)
	}
	return from, until, nil
}
