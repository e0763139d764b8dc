package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

// The results of a symptom.
const (
	fine  = "ok"
	note  = "note"  // nothing is broken, but an operator should know
	fault = "fault" // tasks wait, or may be lost
)

// symptom is one line of the doctor's output.
type symptom struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Found  string `json:"found"`
	Fix    string `json:"fix,omitempty"`
}

// observation is everything that the doctor measured. diagnose judges it.
type observation struct {
	namespace string
	there     bool // the namespace has topics
	brokers   int
	copies    kafka.ReplicaStatus
	history   bool
	topics    []kafka.Finding
	// Partitions without a leader, by topic.
	leaderless map[string][]int32
	workflows  []string // usable definitions, NAME/VERSION
	positions  []kafka.PositionFinding
	// Consumer groups of the roles.
	scheduler, supervisor, notifier    groupObservation
	console                            string // URL of the local console; empty: none
	agents                             map[string]groupObservation
	hanging                            []*kafka.HangingError
	hangingUnknown                     error             // why hanging transactions couldn't be listed
	unstable                           []int32           // partitions whose offsets an open transaction holds back
	held                               map[int32]int64   // offset at which an open transaction stops readers, by partition of events
	restoring                          map[int32]float64 // progress of restores, 0 to 1, by partition
	deadletters, alerts, invalidAlerts int               // in the last hour; invalidAlerts counts records of the alerts topic that aren't alerts
}

// groupObservation is the state of a consumer group.
type groupObservation struct {
	members int
	unowned []int32 // partitions without a member
	lag     int64
	moved   bool // a committed offset moved between two observations
	// submissions is the scheduler's lag in the tasks inbox; taken reports whether that inbox's offsets moved.
	submissions int64
	taken       bool
	circuit     string

	commits map[string]map[int32]int64
	waits   map[string]map[int32]int64 // lag in offsets, by topic and partition
	still   []string                   // topic/partition with a lag and without progress between two observations
}

// hasBacklog reports whether a group has a lag, so that the doctor must measure its progress.
func (c *observation) hasBacklog() bool {
	lag := c.scheduler.lag + c.supervisor.lag + c.notifier.lag + int64(len(c.held))
	for _, a := range c.agents {
		lag += a.lag
	}
	return lag > 0
}

// compareWith records what moved since an earlier observation.
func (c *observation) compareWith(before *observation) {
	c.scheduler.compareWith(before.scheduler)
	tasks := events.Namespace(c.namespace).Inbox(events.Tasks)
	c.scheduler.taken = !maps.Equal(c.scheduler.commits[tasks], before.scheduler.commits[tasks])
	c.supervisor.compareWith(before.supervisor)
	c.notifier.compareWith(before.notifier)
	for name, a := range c.agents {
		a.compareWith(before.agents[name])
		c.agents[name] = a
	}
	for p, at := range c.held {
		if was, held := before.held[p]; !held || was != at {
			delete(c.held, p)
		}
	}
}

func (g *groupObservation) compareWith(before groupObservation) {
	for topic, ps := range g.commits {
		g.moved = g.moved || !maps.Equal(ps, before.commits[topic])
	}
	for topic, ps := range g.waits {
		for p, lag := range ps {
			at, committed := g.commits[topic][p]
			was, before2 := before.commits[topic][p]
			if lag > 0 && before.waits[topic][p] > 0 && committed == before2 && at == was {
				g.still = append(g.still, fmt.Sprintf("%s/%d", topic, p))
			}
		}
	}
	slices.Sort(g.still)
}

// diagnose judges an observation. It does no I/O.
func diagnose(c *observation) []symptom {
	list := brokerSymptoms(c.brokers, &c.copies)
	if !c.there {
		return append(list, symptom{"topics", fault, "the namespace " + c.namespace + " has no topics", "run `waybill topics create`"})
	}
	list = append(list, leaderSymptoms(c.leaderless)...)
	if len(c.leaderless[events.Namespace(c.namespace).Definitions()]) > 0 {
		return list // nothing else was observed
	}
	list = append(list, topicSymptoms(c.topics)...)
	list = append(list, positionSymptoms(c.positions)...)
	if c.history {
		return append(list, symptom{"namespace", note, "its events were imported and are read-only: no role runs here but a console", ""})
	}
	list = append(list, workflowSymptom(c.workflows),
		unstableSymptom(schedulerSymptom(c.scheduler, c.restoring), c.unstable),
		roleSymptom("supervisor", c.supervisor, "nothing times out or is tried again", "waybill supervisor"))
	if c.notifier.lag > 0 && (c.notifier.members == 0 || !c.notifier.moved) {
		list = append(list, symptom{"notifier", fault, fmt.Sprintf("notifications wait, lag %d", c.notifier.lag), "it is part of a scheduler: read the log of one"})
	}
	for _, name := range slices.Sorted(maps.Keys(c.agents)) {
		list = append(list, agentSymptom(name, c.agents[name]))
	}
	list = append(list, consoleSymptom(c.console))
	return append(list, logSymptoms(c)...)
}

func brokerSymptoms(n int, copies *kafka.ReplicaStatus) (list []symptom) {
	const under = "kafka-topics.sh --describe --under-replicated-partitions names them"
	switch {
	case len(copies.MissingBrokers) > 0:
		list = append(list, symptom{"brokers", note, fmt.Sprintf("%d; %v are unavailable, so the partitions that they replicate have fewer copies", n, copies.MissingBrokers),
			"start them; move the replicas of one that is lost for good, with kafka-reassign-partitions.sh"})
	case n == 1:
		list = append(list, symptom{"brokers", note, "1: its disk has the only copy of each order", "in production, three"})
	default:
		list = append(list, symptom{"brokers", fine, fmt.Sprint(n), ""})
	}
	if len(copies.UnderReplicated) > 0 && len(copies.MissingBrokers) == 0 {
		list = append(list, symptom{"brokers", note, "some replicas are behind: " + partitionsText(copies.UnderReplicated), "they may be catching up; otherwise check the brokers that have them: " + under})
	}
	if len(copies.UnderMinISR) > 0 {
		list = append(list, symptom{"brokers", fault, "too few replicas are in sync, so nothing can be written to " + partitionsText(copies.UnderMinISR), "start the brokers that have them: " + under})
	}
	return list
}

// partitionsText lists partitions by topic on one line. It shortens a long list.
func partitionsText(of map[string][]int32) string {
	const most = 3
	topics := slices.Sorted(maps.Keys(of))
	text := ""
	for i, topic := range topics {
		switch {
		case i == most:
			return fmt.Sprintf("%s, and %d more topics", text, len(topics)-most)
		case i > 0:
			text += ", "
		}
		text += topic + " " + numbersText(of[topic])
	}
	return text
}

// numbersText lists partition numbers. It shortens a long list.
func numbersText(ps []int32) string {
	const most = 12
	if len(ps) <= most {
		return fmt.Sprint(ps)
	}
	return fmt.Sprintf("%v and %d more", ps[:most], len(ps)-most)
}

func leaderSymptoms(leaderless map[string][]int32) (list []symptom) {
	for _, topic := range slices.Sorted(maps.Keys(leaderless)) {
		list = append(list, symptom{"brokers", fault, fmt.Sprintf("partitions %s of %s have no leader: their records wait, and aren't counted below", numbersText(leaderless[topic]), topic),
			"start the brokers that have them: kafka-topics.sh --describe --unavailable-partitions names them"})
	}
	return list
}

func topicSymptoms(findings []kafka.Finding) []symptom {
	if len(findings) == 0 {
		return []symptom{{"topics", fine, "all are as they should be", ""}}
	}
	var list []symptom
	for _, f := range findings {
		list = append(list, symptom{"topics", fault, f.Topic + ": " + f.What, f.Fix})
	}
	return list
}

// positionSymptoms judges the committed offsets of schedulers in their inboxes.
func positionSymptoms(found []kafka.PositionFinding) (list []symptom) {
	foreign := map[string][]int32{}
	for _, f := range found {
		at := fmt.Sprintf("%s/%d", f.Topic, f.Partition)
		switch f.Fault {
		case kafka.PositionCut:
			list = append(list, symptom{"positions", fault, fmt.Sprintf("%s ends at %d, but was read up to %d: its log was truncated or restored from a copy, and schedulers don't read it", at, f.End, f.Offset),
				"copy the records that are in the topic, delete it, run `waybill topics create`, and write the copies to the new one: it is read from its start, and what was used already changes nothing"})
		case kafka.PositionTrimmed:
			list = append(list, symptom{"positions", fault, fmt.Sprintf("%s begins at %d, but was read only up to %d: the records between were deleted unread", at, f.Start, f.Offset),
				"whoever wrote them must write them again; check the topic's retention: `waybill topics check`"})
		case kafka.PositionForeign:
			foreign[f.Topic] = append(foreign[f.Topic], f.Partition)
		case kafka.PositionRolledBack: // a running worker finds and reports it
		}
	}
	if len(foreign) > 0 {
		list = append(list, symptom{"positions", note, "no scheduler committed the group's offsets of " + partitionsText(foreign) + ": they aren't used; these are read from their start, and what the log reflects is skipped",
			"nothing: the next commit of a scheduler replaces them. The scheduler group needs no reset"})
	}
	return list
}

func workflowSymptom(workflows []string) symptom {
	if len(workflows) == 0 {
		return symptom{"workflows", fault, "none is applied: every order is refused", "run `waybill workflow apply FILE`"}
	}
	const most = 3
	list := make([]string, 0, most)
	for _, w := range workflows[:min(most, len(workflows))] {
		list = append(list, shorten(w, 30))
	}
	text := strings.Join(list, ", ")
	if more := len(workflows) - most; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return symptom{"workflows", fine, text, ""}
}

// restoringShown bounds the restoring partitions that are listed.
const restoringShown = 5

// schedulerSymptom judges schedulers. A partition waits while a scheduler restores its tasks from the log.
func schedulerSymptom(g groupObservation, restoring map[int32]float64) symptom {
	if g.members > 0 && len(restoring) > 0 {
		parts := make([]string, 0, len(restoring))
		for _, p := range slices.Sorted(maps.Keys(restoring)) {
			parts = append(parts, fmt.Sprintf("%d (%.0f%%)", p, 100*restoring[p]))
		}
		if more := len(parts) - restoringShown; more > 0 {
			parts = append(parts[:restoringShown], fmt.Sprintf("and %d more", more))
		}
		return symptom{"scheduler", note, fmt.Sprintf("restores partitions from the log before it continues: %s; lag %d", strings.Join(parts, ", "), g.lag),
			"wait; its log says how far it is, and what holds it up"}
	}
	if g.members > 0 && len(g.unowned) == 0 && g.submissions > 0 && !g.taken && (g.moved || g.lag == g.submissions) {
		return symptom{"scheduler", fault, fmt.Sprintf("%d submissions wait, and none was consumed in %v; lag %d", g.submissions, progressInterval, g.lag),
			"agents may have as much to do as --max-runnable allows: waybill_submissions_paused is then above 0, and its log names the busiest agents; start missing agents, or read its log"}
	}
	return roleSymptom("scheduler", g, "orders and replies wait in the inboxes", "waybill scheduler")
}

// unstableSymptom adds the partitions whose committed offsets an open transaction holds back.
func unstableSymptom(s symptom, unstable []int32) symptom {
	if s.Result != fine && len(unstable) > 0 {
		s.Found += fmt.Sprintf("; an open transaction holds back the offsets of partitions %v in __consumer_offsets, and a new owner of them can't continue", unstable)
		s.Fix = "it ends after 10 s by itself; one that doesn't is listed as hanging, with what to abort; else " + s.Fix
	}
	return s
}

// roleSymptom judges a role. without says what waits if none runs, and start how to start one.
func roleSymptom(role string, g groupObservation, without, start string) symptom {
	switch {
	case g.members == 0:
		return symptom{role, fault, fmt.Sprintf("none runs: %s, lag %d", without, g.lag), "start one: " + start}
	case len(g.unowned) > 0:
		return symptom{role, fault, fmt.Sprintf("partitions %s have no owner", numbersText(g.unowned)), "run this again in some seconds: they may be moving"}
	case g.lag > 0 && !g.moved:
		return symptom{role, fault, fmt.Sprintf("lag %d, and no progress in %v", g.lag, progressInterval), "read its log"}
	case len(g.still) > 0:
		return symptom{role, note, fmt.Sprintf("no progress in %v in %s, where records wait", progressInterval, shortList(g.still)),
			"run this again; if they stay, its log says since when and why, and so does waybill_partition_standing_seconds"}
	}
	return symptom{role, fine, fmt.Sprintf("%d in the group, lag %d", g.members, g.lag), ""}
}

func agentSymptom(name string, g groupObservation) symptom {
	check := "agent " + name
	switch {
	case g.members == 0 && g.lag == 0:
		return symptom{check, note, "none runs, and nothing waits for it", "start it before its workflows have orders: waybill agent http --agent " + name + ", or a program of yours"}
	case g.members == 0:
		return symptom{check, fault, fmt.Sprintf("nobody reads its requests, lag %d", g.lag), "start it: waybill agent http --agent " + name + ", or a program of yours"}
	case g.circuit == agent.CircuitOpen || g.circuit == agent.CircuitHalfOpen:
		return symptom{check, fault, "a circuit of it is " + g.circuit + ": an operation that it calls fails", "check the service behind it; the agent's log (circuit) and waybill_agent_circuit name the operation"}
	case g.lag > 0 && !g.moved:
		return symptom{check, note, fmt.Sprintf("lag %d, and no progress in %v", g.lag, progressInterval), "calls may take longer than that; otherwise read its log"}
	}
	return symptom{check, fine, fmt.Sprintf("%d in the group, lag %d", g.members, g.lag), ""}
}

func consoleSymptom(url string) symptom {
	if url == "" {
		return symptom{"console", note, "none of this cluster answers at http://" + defaultConsole + ": tools without --api read the log instead, which takes longer", "start one: waybill console"}
	}
	return symptom{"console", fine, url, ""}
}

// shownPartitions bounds a list of partitions.
const shownPartitions = 8

// shortList joins the first entries of a list.
func shortList(of []string) string {
	if len(of) > shownPartitions {
		return fmt.Sprintf("%s and %d others", strings.Join(of[:shownPartitions], ", "), len(of)-shownPartitions)
	}
	return strings.Join(of, ", ")
}

// transactionSymptoms judges transactions that no client will end.
func transactionSymptoms(c *observation) (list []symptom) {
	for _, h := range c.hanging {
		list = append(list, symptom{"transactions", fault, fmt.Sprintf("the transaction of producer %d hangs in %s/%d from offset %d on: later records can't be read", h.Producer, h.Topic, h.Partition, h.Start),
			"abort each that is listed here, then look again: " + h.Abort()})
	}
	if c.hangingUnknown != nil && (len(c.held) > 0 || len(c.unstable) > 0) {
		list = append(list, symptom{"transactions", note, fmt.Sprintf("it is unknown which transactions hang: %v", c.hangingUnknown), "ask as a user who may read these topics, or see kafka-transactions.sh find-hanging, also of __consumer_offsets"})
	}
	return list
}

// logSymptoms judges what the log contains: open transactions, dead letters and alerts.
func logSymptoms(c *observation) (list []symptom) {
	list = append(list, transactionSymptoms(c)...)
	for _, p := range slices.Sorted(maps.Keys(c.held)) {
		list = append(list, symptom{"events", note, fmt.Sprintf("partition %d: an open transaction holds readers at offset %d", p, c.held[p]),
			"it ends after 10 s by itself; one that doesn't is listed as hanging, with what to abort"})
	}
	if c.deadletters > 0 {
		list = append(list, symptom{"dead letters", note, fmt.Sprintf("%d in the last hour", c.deadletters), "waybill deadletters --since 1h says why"})
	}
	if c.alerts > 0 {
		list = append(list, symptom{"alerts", note, fmt.Sprintf("%d in the last hour", c.alerts), "waybill alerts --open shows what waits for you"})
	}
	if c.invalidAlerts > 0 {
		list = append(list, symptom{"alerts", note, fmt.Sprintf("%d records of the last hour aren't alerts", c.invalidAlerts), "waybill alerts --since 1h --api off names them; check which client writes to " + events.Namespace(c.namespace).Alerts()})
	}
	return list
}
