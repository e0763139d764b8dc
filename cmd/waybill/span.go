package main

import (
	"time"

	"github.com/spf13/cobra"
)

// span is the flags --since and --until.
type span struct {
	since
	until string
}

func (s *span) flags(cmd *cobra.Command, what string) {
	s.since.flags(cmd, what+" since")
	cmd.Flags().StringVar(&s.until, "until", "", what+" before: a duration back from now (10m), or an RFC 3339 time")
	narrow(cmd.Flags(), "until")
}

// instants are the bounds; zero: none.
func (s *span) instants(now time.Time) (from, until time.Time, err error) {
	if from, err = s.instant(now); err != nil {
		return from, until, err
	}
	if until, err = instantOf("--until", s.until, now); err != nil {
		return from, until, err
	}
	if s.until != "" && until.Before(from) {
		return from, until, usage("--until %s is before --since %s", s.until, s.text)
	}
	return from, until, nil
}
