package doctor

import (
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/text"
)

// The results of a finding.
const (
	OK    = "ok"
	Note  = "note"  // nothing is broken, but an operator should know
	Fault = "fault" // tasks wait, or may be lost
)

// Finding is one line of the doctor's output.
type Finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Found  string `json:"found"`
	Fix    string `json:"fix,omitempty"`
}

// Diagnose judges an observation. It does no I/O.
func Diagnose(o *Observation) []Finding {
	list := brokerFindings(o.Brokers, &o.Replicas)
	if !o.Exists {
		return append(list, Finding{"topics", Fault, "the namespace " + string(o.Namespace) + " has no topics", "run `waybill topics create`"})
	}
	list = append(list, leaderFindings(o.Leaderless)...)
	if len(o.Leaderless[o.Namespace.Definitions()]) > 0 {
		return list // nothing else was observed
	}
	list = append(list, topicFindings(o.Topics)...)
	list = append(list, positionFindings(o.Positions)...)
	list = append(list, workflowFinding(o.Workflows),
		unstableFinding(schedulerFinding(o.Scheduler, o.Restoring), o.Unstable),
		roleFinding("supervisor", o.Supervisor, "nothing times out or is retried", "waybill supervisor"))
	if o.Notifier.Lag > 0 && (o.Notifier.Members == 0 || !o.Notifier.Moved) {
		list = append(list, Finding{"notifier", Fault, fmt.Sprintf("notifications wait, lag %d", o.Notifier.Lag), "it is part of a scheduler: read the logs of the schedulers"})
	}
	for _, name := range slices.Sorted(maps.Keys(o.Agents)) {
		list = append(list, agentFinding(name, o.Agents[name]))
	}
	list = append(list, intakeFindings(o.Intakes)...)
	list = append(list, scheduleFindings(&o.Schedules)...)
	for _, fault := range o.Unusable {
		list = append(list, Finding{"workflows", Fault, fault, "run a build that can read it; or apply a new version, and `waybill workflow delete` this one"})
	}
	for _, use := range o.Missing {
		list = append(list, Finding{"workflows", Fault, use, "`waybill workflow apply` that workflow, or name another one"})
	}
	for _, use := range o.Deprecated {
		list = append(list, Finding{"workflows", Note, use, "name another version, or none"})
	}
	list = append(list, batchFindings(&o.Batches)...)
	list = append(list, consoleFinding(o.Console, o.ConsoleAddr))
	return append(list, logFindings(o)...)
}

// Faults counts the findings that are faults.
func Faults(list []Finding) (n int) {
	for i := range list {
		if list[i].Result == Fault {
			n++
		}
	}
	return n
}

func brokerFindings(n int, copies *kafkaadmin.ReplicaStatus) (list []Finding) {
	const under = "kafka-topics.sh --describe --under-replicated-partitions names them"
	switch {
	case len(copies.MissingBrokers) > 0:
		list = append(list, Finding{"brokers", Note, fmt.Sprintf("%d; %v are unavailable, so the partitions that they replicate have fewer copies", n, copies.MissingBrokers),
			"start them; move the replicas of one that is lost for good, with kafka-reassign-partitions.sh"})
	case n == 1:
		list = append(list, Finding{"brokers", Note, "1: its disk has the only copy of each task", "in production, run three or more"})
	default:
		list = append(list, Finding{"brokers", OK, fmt.Sprint(n), ""})
	}
	if len(copies.UnderReplicated) > 0 && len(copies.MissingBrokers) == 0 {
		list = append(list, Finding{"brokers", Note, "some replicas are behind: " + partitionsText(copies.UnderReplicated), "they may be catching up; otherwise check the brokers that have them: " + under})
	}
	if len(copies.UnderMinISR) > 0 {
		list = append(list, Finding{"brokers", Fault, "too few replicas are in sync, so nothing can be written to " + partitionsText(copies.UnderMinISR), "start the brokers that have them: " + under})
	}
	return list
}

// partitionsText lists partitions by topic on one line. It shortens a long list.
func partitionsText(of map[string][]int32) string {
	const most = 3
	topics := slices.Sorted(maps.Keys(of))
	list := ""
	for i, topic := range topics {
		switch {
		case i == most:
			return fmt.Sprintf("%s, and %d more %s", list, len(topics)-most, text.Plural(len(topics)-most, "topic"))
		case i > 0:
			list += ", "
		}
		list += topic + " " + numbersText(of[topic])
	}
	return list
}

// numbersText lists partition numbers. It shortens a long list.
func numbersText(ps []int32) string {
	const most = 12
	if len(ps) <= most {
		return fmt.Sprint(ps)
	}
	return fmt.Sprintf("%v and %d more", ps[:most], len(ps)-most)
}

func leaderFindings(leaderless map[string][]int32) (list []Finding) {
	for _, topic := range slices.Sorted(maps.Keys(leaderless)) {
		list = append(list, Finding{"brokers", Fault, fmt.Sprintf("partitions %s of %s have no leader: their records wait, and aren't counted below", numbersText(leaderless[topic]), topic),
			"start the brokers that have them: kafka-topics.sh --describe --unavailable-partitions names them"})
	}
	return list
}

func topicFindings(findings []kafkaadmin.Finding) []Finding {
	if len(findings) == 0 {
		return []Finding{{"topics", OK, "all have the expected settings", ""}}
	}
	var list []Finding
	for _, f := range findings {
		list = append(list, Finding{"topics", Fault, f.Topic + ": " + f.What, f.Fix})
	}
	return list
}

// positionFindings judges the committed offsets of schedulers in their inboxes.
func positionFindings(found []kafkaadmin.PositionFinding) (list []Finding) {
	foreign := map[string][]int32{}
	for _, f := range found {
		at := fmt.Sprintf("%s/%d", f.Topic, f.Partition)
		switch f.Fault {
		case groupmember.PositionCut:
			list = append(list, Finding{"positions", Fault, fmt.Sprintf("%s ends at %d, but was read up to %d: its log was truncated or restored from a copy, and schedulers don't read it", at, f.End, f.Offset),
				"copy the records that are in the topic, delete it, run `waybill topics create`, and write the copies to the new one: schedulers read it from its start, and records that were used before have no second effect"})
		case groupmember.PositionTrimmed:
			list = append(list, Finding{"positions", Fault, fmt.Sprintf("%s begins at %d, but was read only up to %d: the records between were deleted unread", at, f.Start, f.Offset),
				"their writers must write them again; check the topic's retention: `waybill topics check`"})
		case groupmember.PositionForeign:
			foreign[f.Topic] = append(foreign[f.Topic], f.Partition)
		case groupmember.PositionRolledBack: // a running worker finds and reports it
		}
	}
	if len(foreign) > 0 {
		list = append(list, Finding{"positions", Note, "the group's offsets of " + partitionsText(foreign) + " were not committed by a scheduler and aren't used: these partitions are read from their start, and records that the log reflects are skipped",
			"do nothing: the next commit of a scheduler replaces them. The scheduler group needs no reset"})
	}
	return list
}

func workflowFinding(workflows []string) Finding {
	if len(workflows) == 0 {
		return Finding{"workflows", Fault, "none is applied: every submission is refused", "run `waybill workflow apply FILE`"}
	}
	const most, longest = 3, 30
	short := make([]string, len(workflows))
	for i, w := range workflows {
		short[i] = text.Shorten(w, longest)
	}
	return Finding{"workflows", OK, text.List(short, most), ""}
}

// The bounds of lists of partitions.
const (
	restoringShown = 5
	stalledShown   = 8
)

// schedulerFinding judges schedulers. A partition waits while a scheduler restores its tasks from the log.
func schedulerFinding(g Group, restoring map[int32]float64) Finding {
	if g.Members > 0 && len(restoring) > 0 {
		parts := make([]string, 0, len(restoring))
		for _, p := range slices.Sorted(maps.Keys(restoring)) {
			parts = append(parts, fmt.Sprintf("%d (%.0f%%)", p, 100*restoring[p]))
		}
		return Finding{"scheduler", Note, fmt.Sprintf("restores partitions from the log before it continues: %s; lag %d", text.List(parts, restoringShown), g.Lag),
			"wait; its log shows its progress and what delays it"}
	}
	if g.Members > 0 && len(g.Unowned) == 0 && g.Submissions > 0 && !g.SubmissionsMoved && (g.Moved || g.Lag == g.Submissions) {
		return Finding{"scheduler", Fault, fmt.Sprintf("no submission was consumed in %v, and %d wait; lag %d", progressInterval, g.Submissions, g.Lag),
			"agents may have as much to do as --max-runnable allows: waybill_submissions_paused is then above 0, and its log names the busiest agents; start missing agents, or read its log"}
	}
	return roleFinding("scheduler", g, "submissions and replies wait in the inboxes", "waybill scheduler")
}

// unstableFinding adds the partitions whose committed offsets an open transaction holds back.
func unstableFinding(s Finding, unstable []int32) Finding {
	if s.Result != OK && len(unstable) > 0 {
		s.Found += fmt.Sprintf("; an open transaction holds back the offsets of partitions %v in __consumer_offsets, and a new owner of them can't continue", unstable)
		s.Fix = "it ends after 10 s by itself; one that doesn't is listed as hanging, with what to abort; else " + s.Fix
	}
	return s
}

// roleFinding judges a role. without says what waits if none runs, and start how to start one.
func roleFinding(role string, g Group, without, start string) Finding {
	switch {
	case g.Members == 0:
		return Finding{role, Fault, fmt.Sprintf("none runs: %s, lag %d", without, g.Lag), "start one: " + start}
	case len(g.Unowned) > 0:
		return Finding{role, Fault, fmt.Sprintf("partitions %s have no owner", numbersText(g.Unowned)), "run this again in a few seconds: a rebalance may be in progress"}
	case g.Lag > 0 && !g.Moved:
		return Finding{role, Fault, fmt.Sprintf("lag %d, and no progress in %v", g.Lag, progressInterval), "read its log"}
	case len(g.Stalled) > 0:
		return Finding{role, Note, fmt.Sprintf("no progress in %v in %s, where records wait", progressInterval, text.List(g.Stalled, stalledShown)),
			"run this again; if they remain, its log says since when and why, and waybill_partition_stalled_seconds shows it too"}
	}
	return Finding{role, OK, fmt.Sprintf("%d in the group, lag %d", g.Members, g.Lag), ""}
}

func agentFinding(name string, g Group) Finding {
	check := "agent " + name
	switch {
	case g.Members == 0 && g.Lag == 0:
		return Finding{check, Note, "none runs, and nothing waits for it", "start it before its workflows get tasks: waybill agent http --agent " + name + ", or your own program"}
	case g.Members == 0:
		return Finding{check, Fault, fmt.Sprintf("no process reads its requests, lag %d", g.Lag), "start it: waybill agent http --agent " + name + ", or your own program"}
	case g.Circuit == agent.CircuitOpen || g.Circuit == agent.CircuitHalfOpen:
		return Finding{check, Fault, "a circuit breaker of it is " + g.Circuit + ": an operation that it calls fails", "check the service behind it; the agent's log (circuit) and waybill_agent_circuit name the operation"}
	case g.Lag > 0 && !g.Moved:
		return Finding{check, Note, fmt.Sprintf("lag %d, and no progress in %v", g.Lag, progressInterval), "calls may take longer than that; otherwise read its log"}
	}
	return Finding{check, OK, fmt.Sprintf("%d in the group, lag %d", g.Members, g.Lag), ""}
}

func consoleFinding(url, addr string) Finding {
	if url == "" {
		return Finding{"console", Note, "none of this cluster answers at http://" + addr + ": tools without --api or WAYBILL_API read the log instead, which takes longer", "start one: waybill console"}
	}
	return Finding{"console", OK, url, ""}
}

// transactionFindings judges transactions that no client will end.
func transactionFindings(o *Observation) (list []Finding) {
	for _, h := range o.Hanging {
		list = append(list, Finding{"transactions", Fault, fmt.Sprintf("the transaction of producer %d hangs in %s/%d from offset %d on: later records can't be read", h.Producer, h.Topic, h.Partition, h.Start),
			"abort each one listed here, then run this again: " + h.Abort()})
	}
	if o.HangingUnknown != nil && (len(o.ReadersHeldAt) > 0 || len(o.Unstable) > 0) {
		list = append(list, Finding{"transactions", Note, fmt.Sprintf("it is unknown which transactions hang: %v", o.HangingUnknown), "run this as a user who may read these topics, or use kafka-transactions.sh find-hanging, also for __consumer_offsets"})
	}
	return list
}

// logFindings judges what the log contains: open transactions, dead letters and alerts.
func logFindings(o *Observation) (list []Finding) {
	list = append(list, transactionFindings(o)...)
	for _, p := range slices.Sorted(maps.Keys(o.ReadersHeldAt)) {
		list = append(list, Finding{"events", Note, fmt.Sprintf("partition %d: an open transaction holds readers at offset %d", p, o.ReadersHeldAt[p]),
			"it ends after 10 s by itself; one that doesn't is listed as hanging, with what to abort"})
	}
	if o.Deadletters > 0 {
		list = append(list, Finding{"dead letters", Note, fmt.Sprintf("%d in the last hour", o.Deadletters), "waybill deadletters --since 1h says why"})
	}
	if o.Alerts > 0 {
		list = append(list, Finding{"alerts", Note, fmt.Sprintf("%d in the last hour", o.Alerts), "waybill alerts --open shows what waits for you"})
	}
	if o.InvalidAlerts > 0 {
		list = append(list, Finding{"alerts", Note, text.Count(o.InvalidAlerts, "record") + " of the alerts topic in the last hour can't be read as alerts", "waybill alerts --since 1h --api off names them; check which client writes to " + o.Namespace.Alerts()})
	}
	return list
}
