package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// ErrNotFound: there is no intake with the name.
var ErrNotFound = errors.New("there is no such intake")

// The states of an intake.
const (
	StateRunning = "running"
	StatePaused  = "paused"
	StateStopped = "stopped" // no process runs it
	StateFault   = "fault"   // its definition can't be used
)

// IntakeStatus is an intake in the JSON of the API and the CLI.
type IntakeStatus struct {
	Name        string             `json:"name" jsonschema:"The name of the intake."`
	State       string             `json:"state" enum:"running,paused,stopped,fault" jsonschema:"The state of the intake. stopped: no process runs it. fault: its definition can't be used."`
	Topic       string             `json:"topic" jsonschema:"The topic that it consumes."`
	Format      Format             `json:"format" jsonschema:"The format of the topic's values: json, cloudevents or avro."`
	To          string             `json:"to" jsonschema:"What a record becomes: the name of a workflow, or that of a signal after the word signal."`
	Lag         *int64             `json:"lag" jsonschema:"How many records it still has to consume. null: unknown."`
	Partitions  []IntakePartition  `json:"partitions" jsonschema:"Where it is in each partition of the topic. Empty: unknown."`
	Deadletters *IntakeDeadletters `json:"deadletters" jsonschema:"Its recent dead letters. null: unknown."`
	Members     int                `json:"members" jsonschema:"How many workers of processes consume the topic."`
	SampledAt   *string            `json:"sampled_at" format:"date-time" jsonschema:"When Kafka was asked for all this. null: unknown."`
	AppliedAt   *string            `json:"applied_at" format:"date-time" jsonschema:"When the definition was written last. null: unknown."`
	By          string             `json:"by" jsonschema:"Who wrote it, by a console's token. Empty: unknown."`
	Claimed     string             `json:"by_claimed" jsonschema:"Who wrote it, unverified. Empty: unknown."`
	Why         string             `json:"why" jsonschema:"Why it was written, or paused. Empty: no reason was given."`
	Fault       string             `json:"fault,omitempty" jsonschema:"Why the definition, or the lag, can't be read. Absent: it can."`
	Definition  json.RawMessage    `json:"definition" jsonschema:"The definition, as applied, with its defaults. null: it can't be read."`
}

// IntakePartition is where an intake is in a partition of its topic.
type IntakePartition struct {
	Partition int32   `json:"partition" jsonschema:"The number of the partition."`
	Position  *string `json:"position" jsonschema:"The offset of the next record that it consumes, as a string. null: it has no position yet."`
	End       *string `json:"end" jsonschema:"The offset after the last record, as a string. null: unknown, for example because no broker leads the partition."`
	Lag       *int64  `json:"lag" jsonschema:"How many records it still has to consume. null: unknown."`
	Worker    string  `json:"worker" jsonschema:"Who consumes the partition: a worker of a process. Empty: none does."`
}

// IntakeDeadletters counts dead letters of an intake: records that it couldn't map, and what it made of records but a scheduler
// couldn't use.
type IntakeDeadletters struct {
	Count int64   `json:"count" jsonschema:"How many there are, also those that were written again since."`
	Since *string `json:"since" format:"date-time" jsonschema:"Since when they are counted: 24 hours before, or less if there are more than 100,000 dead letters."`
}

// Offsets are offsets of a topic by partition. A partition that isn't in Ends or Starts has no known one.
type Offsets struct {
	Partitions              int32
	Committed, Starts, Ends map[int32]int64
	Workers                 map[int32]string
}

// Positions returns where an intake is, and its lag. Committed was read first, and Starts last. The error says which
// positions can't be of this topic.
func (o *Offsets) Positions() (list []IntakePartition, lag *int64, err error) {
	var beyond []int32
	for n := range o.Partitions {
		p := IntakePartition{Partition: n, Worker: o.Workers[n]}
		at, placed := o.Committed[n]
		end, known := o.Ends[n]
		if placed {
			p.Position = offsetText(at)
		}
		if known {
			p.End = offsetText(end)
		}
		switch {
		case placed && known && at > end:
			beyond = append(beyond, n)
		case placed && known:
			behind := max(0, end-max(at, o.Starts[n]))
			if p.Lag = &behind; lag == nil {
				lag = new(int64)
			}
			*lag += behind
		}
		list = append(list, p)
	}
	if len(beyond) > 0 {
		return list, nil, fmt.Errorf("its positions in the partitions %v are beyond the end of the topic, which was recreated or truncated: a process that runs it continues, or writes an alert", beyond)
	}
	return list, lag, nil
}

func offsetText(offset int64) *string {
	text := strconv.FormatInt(offset, 10)
	return &text
}
