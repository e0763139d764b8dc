package workflow

import (
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// instantOptions make the functions of instants use the zone of their instant, rather than UTC. They add the function
// date, which gives a date as text: 2026-11-30.
var instantOptions = []cel.EnvOption{
	cel.DefaultUTCTimeZone(false),
	cel.Function("date", cel.MemberOverload("timestamp_date", []*cel.Type{cel.TimestampType}, cel.StringType,
		cel.UnaryBinding(func(v ref.Val) ref.Val {
			at, ok := v.(types.Timestamp)
			if !ok {
				return types.MaybeNoSuchOverloadErr(v)
			}
			return types.String(at.Format(time.DateOnly))
		}))),
}
