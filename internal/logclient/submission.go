package logclient

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/text"
)

const (
	// submissionsMax bounds the lines of a file of submissions.
	submissionsMax = 2_000_000
	// faultsShownMax bounds the faults that an InvalidSubmissionsError lists.
	faultsShownMax = 20
)

// Submission is an order to write, and its position once it is written.
type Submission struct {
	*events.Submission
	Record       events.Record
	Acknowledged bool // by all in-sync replicas, at the position in Record
}

// NewSubmission returns an order's record, or an error if schedulers can't use it: it decodes it as they do.
func NewSubmission(ns events.Namespace, source string, order *events.Submission) (*Submission, error) {
	if err := order.Check(); err != nil {
		return nil, err
	}
	return decodeSubmission(ns, source, order.Record(ns, source))
}

func decodeSubmission(ns events.Namespace, source string, r events.Record) (*Submission, error) {
	_, in, err := events.DecodeInput(events.Tasks, &r)
	if err != nil {
		return nil, err
	}
	s := in.(*events.Submission)
	if u := ns.CheckReplyTo(s.ReplyTo); u != nil {
		return nil, errors.New(u.Detail)
	}
	return &Submission{Submission: s, Record: s.Record(ns, source)}, nil
}

// InvalidSubmissionsError says which lines of a file aren't submissions.
type InvalidSubmissionsError struct{ message string }

func (e *InvalidSubmissionsError) Error() string { return e.message }

// ReadSubmissions reads JSON lines. It skips blank lines, and reports all faults at once, as an InvalidSubmissionsError.
// name is that of the file.
func ReadSubmissions(in io.Reader, name string, ns events.Namespace, source string) ([]*Submission, error) {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(make([]byte, 0, 64<<10), events.MaxSubmissionBytes+2)
	var subs []*Submission
	var faults []string
	type place struct{ index, line int }
	seen := map[string]place{}
	number := 0
	for scanner.Scan() {
		number++
		line := scanner.Bytes()
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")) // the byte order mark that some editors write
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		s, err := decodeSubmission(ns, source, events.Record{Value: bytes.Clone(line)})
		if err == nil {
			if first, twice := seen[s.ID]; !twice {
				seen[s.ID] = place{len(subs), number}
			} else if subs[first.index].Digest() != s.Digest() {
				err = fmt.Errorf("id %q was on line %d, with another body", s.ID, first.line)
			}
		}
		if err != nil {
			faults = append(faults, fmt.Sprintf("line %d: %v", number, err))
			continue
		}
		if subs = append(subs, s); len(subs) > submissionsMax {
			return nil, &InvalidSubmissionsError{fmt.Sprintf("%s: more than %d lines; split it: submitting a part again is harmless", name, submissionsMax)}
		}
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		faults = append(faults, fmt.Sprintf("line %d: more than %d bytes", number+1, events.MaxSubmissionBytes))
	} else if err != nil {
		return nil, fmt.Errorf("%s: read: %w", name, err)
	}
	switch n := len(faults); {
	case n > 0:
		if n > faultsShownMax {
			faults = append(faults[:faultsShownMax], fmt.Sprintf("and %d more", n-faultsShownMax))
		}
		return nil, &InvalidSubmissionsError{fmt.Sprintf("%s: %s can't be submitted, so none was; each line is one submission:\n  %s", name, text.Count(n, "line"), strings.Join(faults, "\n  "))}
	case len(subs) == 0:
		return nil, &InvalidSubmissionsError{name + ": it has no submission; each line must be one JSON object"}
	}
	return subs, nil
}

// SendFunc writes a record, and calls done when it is acknowledged or has failed (kafka.Producer.SendAsync).
type SendFunc func(ctx context.Context, r events.Record, done func(events.Record, error))

// SendSubmissions writes submissions, and calls result for each when it is acknowledged or has failed. It returns an
// error only if ctx ends first. A Waiter learns which orders were written; it may be nil.
func SendSubmissions(ctx context.Context, send SendFunc, subs []*Submission, w *Waiter, result func(s *Submission, err error)) error {
	type ack struct {
		s   *Submission
		r   events.Record
		err error
	}
	acks := make(chan ack, len(subs))
	for _, s := range subs {
		if w != nil {
			w.BeforeWrite(s.ID)
		}
		send(ctx, s.Record, func(r events.Record, err error) {
			if err == nil && w != nil { // possibly after SendSubmissions has returned
				w.AfterAck(s.ID, s.Digest(), &r)
			}
			acks <- ack{s, r, err}
		})
	}
	for range subs {
		select {
		case a := <-acks:
			if a.err == nil {
				a.s.Record, a.s.Acknowledged = a.r, true
			}
			result(a.s, a.err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
