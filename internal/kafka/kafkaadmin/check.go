package kafkaadmin

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

// Finding is a setting of the namespace's topics that is weaker than Waybill's guarantees need.
type Finding struct {
	Topic string
	// What describes the fault, Fix the remedy.
	What, Fix string
}

// topicState is the observed state of a topic.
type topicState struct {
	partitions int32
	// replication is that of the partition with the fewest replicas.
	replication int
	// settings in force, with the broker's defaults. A setting that the broker doesn't
	// list is not checked.
	settings map[string]string
}

// CheckTopics compares the topics of the namespace and of its agents with their specification.
// Without a finding all is well. Agents in named must have a topic.
func (a *Admin) CheckTopics(ctx context.Context, named ...string) ([]Finding, error) {
	meta, err := kafka.Metadata(ctx, a.adm)
	if err != nil {
		return nil, fmt.Errorf("check topics: %w", err)
	}
	var findings []Finding
	f, err := a.Format(ctx)
	if errors.Is(err, ErrNoFormat) {
		f.Partitions = int32(len(meta.Topics[a.cfg.Namespace.Events()].Partitions))
		if f.Partitions == 0 {
			f.Partitions = events.DefaultPartitions
		}
		findings = append(findings, Finding{a.cfg.Namespace.Definitions(), "no format record", "run `waybill topics create`"})
	} else if err != nil {
		return nil, fmt.Errorf("check topics: %w", err)
	}
	agents, _, err := a.RequestTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("check topics: %w", err)
	}
	for _, agent := range named {
		if _, there := agents[agent]; !there {
			agents[agent] = 0
		}
	}
	specs := topicSpecs(a.cfg.Namespace, f.Partitions, agents)
	state, err := a.topicStates(ctx, specs, meta)
	if err != nil {
		return nil, fmt.Errorf("check topics: %w", err)
	}
	return append(findings, checkTopics(specs, state, len(meta.Brokers))...), nil
}

func (a *Admin) topicStates(ctx context.Context, specs []topicSpec, meta kadm.Metadata) (map[string]topicState, error) {
	states := make(map[string]topicState)
	var names []string
	for _, spec := range specs {
		t, ok := meta.Topics[spec.name]
		if !ok || errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			continue
		}
		if t.Err != nil {
			return nil, fmt.Errorf("topic %s: %w", spec.name, t.Err)
		}
		s := topicState{partitions: int32(len(t.Partitions)), settings: make(map[string]string)}
		for i, p := range t.Partitions.Sorted() {
			if i == 0 || len(p.Replicas) < s.replication {
				s.replication = len(p.Replicas)
			}
		}
		states[spec.name] = s
		names = append(names, spec.name)
	}
	described, err := a.adm.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe topic settings: %w", err)
	}
	for _, d := range described {
		if d.Err != nil {
			return nil, fmt.Errorf("describe settings of topic %s: %w %s", d.Name, d.Err, d.ErrMessage)
		}
		for _, c := range d.Configs {
			states[d.Name].settings[c.Key] = c.MaybeValue()
		}
	}
	return states, nil
}

// checkTopics compares states with the specs. It does no I/O.
func checkTopics(specs []topicSpec, state map[string]topicState, brokers int) []Finding {
	var findings []Finding
	for _, spec := range specs {
		s, ok := state[spec.name]
		if !ok {
			findings = append(findings, Finding{spec.name, "missing", missingFix(spec)})
			continue
		}
		if s.partitions != spec.partitions && spec.inbox && spec.fits(s.partitions) {
			findings = append(findings, Finding{spec.name,
				fmt.Sprintf("%d partitions instead of %d: records in the added partitions are forwarded to the right partition by a scheduler", s.partitions, spec.partitions),
				"nothing urgent: Kafka can't remove partitions; to have the planned number again, start a new namespace"})
		} else if !spec.fits(s.partitions) {
			findings = append(findings, Finding{spec.name,
				fmt.Sprintf("%d partitions instead of %d: the inboxes and events must agree", s.partitions, spec.partitions),
				"Kafka can't remove partitions, and added ones move tasks: copy the namespace to a new one"})
		}
		if want := min(wantReplication, brokers); s.replication < want {
			findings = append(findings, Finding{spec.name,
				fmt.Sprintf("replication %d with %d brokers, less than %d: tasks are lost if a broker is lost", s.replication, brokers, want),
				fmt.Sprintf("move it to %d replicas with kafka-reassign-partitions.sh", want)})
		}
		findings = append(findings, checkSettings(spec, s, brokers)...)
	}
	return findings
}

func missingFix(spec topicSpec) string {
	const create = "run `waybill topics create`"
	if spec.inbox {
		return create + ": schedulers read the new topic from its start. Records that waited in a deleted topic are lost: their writers must write them again"
	}
	return create
}

func checkSettings(spec topicSpec, s topicState, brokers int) []Finding {
	var findings []Finding
	judge := func(name, want, why string, bad func(have string) bool) {
		have, listed := s.settings[name]
		if listed && bad(have) {
			findings = append(findings, Finding{spec.name, fmt.Sprintf("%s is %s, not %s: %s", name, have, want, why),
				fmt.Sprintf("kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config %s=%s", spec.name, name, want)})
		}
	}
	not := func(want string) func(string) bool { return func(have string) bool { return have != want } }
	below := func(want int) func(string) bool {
		return func(have string) bool { n, err := strconv.Atoi(have); return err != nil || n < want }
	}
	judge("message.timestamp.type", "LogAppendTime", "a client with a wrong clock could not write, and record times would be those of the clients",
		not("LogAppendTime"))
	cleanup := spec.settings["cleanup.policy"]
	why := "records that are still needed would be lost"
	if cleanup == "compact" {
		why = "it would grow without end, or forget the newest record of a key"
	}
	judge("cleanup.policy", cleanup, why, not(cleanup))
	if spec.kept {
		lost := "records that are not consumed in time would be lost"
		if !spec.inbox {
			lost = "tasks would be lost, and a role could only start from a data directory that has read the deleted records"
		}
		judge("retention.ms", keepForEver, lost, not(keepForEver))
		judge("retention.bytes", keepForEver, lost, not(keepForEver))
	}
	want := min(wantMinISR, brokers)
	judge("min.insync.replicas", strconv.Itoa(want), "an acknowledged record could be on one disk only", below(want))
	judge("unclean.leader.election.enable", "false", "an election could lose acknowledged records", not("false"))
	judge("max.message.bytes", strconv.Itoa(MaxMessageBytes), "the broker would refuse records that the client permits", below(MaxMessageBytes))
	return findings
}
