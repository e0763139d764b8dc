package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/verify"
)

// verifyFile checks a file of `waybill export`. It has events only.
func (o *verifyOptions) verifyFile(cmd *cobra.Command, options verify.Options) (*verify.Result, error) {
	switch {
	case o.file == "-":
		return nil, usage("verify --file reads a broken file twice, so it can't read standard input (-): write it to a file")
	case o.partitions != nil:
		return nil, usage("--partition and --file can't be combined")
	}
	h, err := o.openHistory(cmd)
	if err != nil {
		return nil, err
	}
	defer h.close()
	if f, ok := h.(*fileHistory); ok {
		f.noted, f.cut, f.lacks = true, true, true // they are reported as faults instead
	}
	options.Namespace, options.Partitions = h.Head().Namespace, h.Head().Partitions
	c, next, err := checkFile(cmd, o.file, options)
	if err != nil {
		return nil, err
	}
	report := c.Finish(time.Now())
	view := report.Result(options, next)
	if line := report.Timeline(); line != nil {
		err = h.Read(cmd.Context(), "", func(r *events.Record) error {
			line.Add(r)
			return nil
		}, nil)
		view.Timeline = line.Lines()
	}
	return view, err
}

// checkFile feeds a file to a check, with a progress bar by the bytes of the file. next is the offset after the last
// event of each partition.
func checkFile(cmd *cobra.Command, path string, options verify.Options) (all *verify.Checker, next map[int32]int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, exit(exitUsage, "--file: %w", err)
	}
	defer func() { _ = f.Close() }() // only read: an error on close loses nothing
	in := &progressReader{in: f, bar: newProgress(cmd.ErrOrStderr(), "reading "+path)}
	defer in.bar.end()
	if info, err := f.Stat(); err == nil {
		in.total = info.Size()
	}
	check, last := verify.NewPartitioned(nil, options), map[int32]*int64{}
	r, err := replay.NewReader(in)
	if err == nil {
		err = r.EachParallel(cmd.Context(), func(p int32) replay.RecordFunc {
			c, next := check.Checker(p), new(int64)
			last[p] = next
			return func(r *events.Record, changed *replay.ChangedError) {
				if changed != nil { // reported before the faults that it causes
					c.Corrupt(r.Topic, r.Partition, r.Offset, []string{string(r.Key)}, changed.What())
				}
				c.Event(r)
				*next = r.Offset + 1
			}
		})
	}
	cut, is := errors.AsType[*replay.CutError](err)
	if err != nil && !is {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	all, next = check.Merge(), map[int32]int64{}
	for p, at := range last {
		next[p] = *at
	}
	if r != nil && r.ChangedHead() != nil {
		all.Incomplete(r.ChangedHead().Error())
	}
	if r != nil && r.Without() != nil {
		all.Incomplete(r.Without().Error())
	}
	if is {
		all.Incomplete("the file isn't whole: " + cut.Error())
	}
	return all, next, nil
}

// progressReader shows how much of a file was read. It is for one goroutine.
type progressReader struct {
	in          *os.File
	bar         *progressBar
	done, total int64
}

func (m *progressReader) Read(b []byte) (int, error) {
	n, err := m.in.Read(b)
	m.done += int64(n)
	m.bar.set(m.done, m.total)
	return n, err
}
