package instance

import (
	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/projections"
)

// Roles recognise errors and sessions of the adapters by their methods, without importing them. The compiler doesn't
// see a method that was renamed on one side only, so these lines do.
var (
	_ agent.PartitionHolder = (*agentsession.Session)(nil)
	_ agent.CircuitReporter = (*agentsession.Session)(nil)

	_ interface{ Ahead() bool } = (*logreader.OffsetRangeError)(nil)
	_ interface{ Ahead() bool } = (*logreader.LostError)(nil)
	_ interface{ Ahead() bool } = (*projections.LogMismatchError)(nil)

	_ interface{ Permanent() bool } = (*kafka.TimeoutError)(nil)
	_ interface{ Permanent() bool } = (*groupmember.DuplicateInstanceError)(nil)
	_ interface {
		Permanent() bool
		Refused() bool
	} = (*kafka.RefusedError)(nil)

	_ interface{ Recreated() bool }      = (*kafka.RecreatedError)(nil)
	_ interface{ TooLarge() (int, int) } = (*kafka.TooLargeError)(nil)
)
