package events

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// DefaultNamespace is the namespace if none is configured.
const DefaultNamespace = "waybill."

// DefaultPartitions is the partition count of the inboxes and of events.
const DefaultPartitions = 12

// Inbox is one of the five topics that a scheduler consumes.
type Inbox uint8

// The inboxes, in the order in which a scheduler reads them if several have records. Inputs that free capacity come
// before inputs that use it. Signals come after submissions, since a signal may follow the submission of its task.
const (
	Controls Inbox = iota
	Replies
	Recoveries
	Tasks
	Signals
	Inboxes // their number
)

var inboxNames = [Inboxes]string{"controls", "replies", "recoveries", "tasks", "signals"}

// String returns the topic's name without its namespace. It is also the first part of an event's cause.
func (i Inbox) String() string { return inboxNames[i] }

// ParseInbox is the inverse of Inbox.String.
func ParseInbox(s string) (Inbox, bool) {
	for i, n := range inboxNames {
		if n == s {
			return Inbox(i), true
		}
	}
	return 0, false
}

// Namespace is the prefix of every topic, group, transactional and instance id of one system, including its separator
// ("waybill."). Several systems can share a cluster under different namespaces.
type Namespace string

// maxNamespaceBytes leaves room for the rest of a topic's name, which Kafka bounds at 249 bytes.
const maxNamespaceBytes = 100

// families are the prefixes, within a namespace, of topics, groups and transactional ids that are named after agents
// and schedulers. A namespace that consists of another namespace, one of these prefixes and more would collide with
// that namespace's names.
var families = [...]string{"requests.", "agent.", "scheduler."}

// Check returns why a namespace can't be used; nil: it can.
func (n Namespace) Check() error {
	text := string(n)
	if !TopicName(text+"x") || len(text) > maxNamespaceBytes || !strings.ContainsAny(text[max(0, len(text)-1):], "._-") {
		return errors.New("letters, digits, '.', '_' and '-', at most 100, ending in one of the last three; the default is " + strconv.Quote(DefaultNamespace))
	}
	for _, f := range families {
		for at := 0; ; at++ {
			next := strings.Index(text[at:], f)
			if next < 0 {
				break
			}
			if at += next; at > 0 && strings.ContainsAny(text[at-1:at], "._-") {
				return fmt.Errorf("its names would be taken for those of an agent or a scheduler of the namespace %s; choose one without %q after a separator", text[:at], f)
			}
		}
	}
	return nil
}

// Inbox returns the name of an inbox's topic.
func (n Namespace) Inbox(i Inbox) string { return string(n) + i.String() }

// InboxTopics returns the names of the inboxes' topics, indexed by Inbox.
func (n Namespace) InboxTopics() []string {
	t := make([]string, Inboxes)
	for i := range t {
		t[i] = n.Inbox(Inbox(i))
	}
	return t
}

// The names of the topics that aren't inboxes.
func (n Namespace) Events() string        { return string(n) + "events" }
func (n Namespace) Answers() string       { return string(n) + "answers" }
func (n Namespace) Alerts() string        { return string(n) + "alerts" }
func (n Namespace) Definitions() string   { return string(n) + "definitions" }
func (n Namespace) Snapshots() string     { return string(n) + "snapshots" }
func (n Namespace) Deadletters() string   { return string(n) + "deadletters" }
func (n Namespace) Notifications() string { return string(n) + "notifications" }
func (n Namespace) Batches() string       { return string(n) + "batches" }
func (n Namespace) Schedules() string     { return string(n) + "schedules" }

// Requests returns the name of an agent's request topic.
func (n Namespace) Requests(agent string) string { return string(n) + "requests." + agent }

// AgentOf is the inverse of Requests.
func (n Namespace) AgentOf(topic string) (string, bool) {
	return strings.CutPrefix(topic, string(n)+"requests.")
}

// keptDefinition begins the key of the copy of a deleted definition.
const keptDefinition = "deleted/"

// DefinitionKey returns the key of a version of a workflow on the definitions topic.
func DefinitionKey(name string, version int) string { return name + "/" + strconv.Itoa(version) }

// KeptDefinition returns the key of the copy of a deleted definition. A scheduler writes the copy, so that tasks that
// began with the definition have its body after compaction.
func KeptDefinition(key string) string { return keptDefinition + key }

// ParseDefinitionKey returns the key of the definition that a record of the definitions topic is about, and whether the
// record is the kept copy. is reports whether it is about a definition at all; the namespace's format record isn't.
func ParseDefinitionKey(key string) (of string, kept, is bool) {
	if rest, found := strings.CutPrefix(key, keptDefinition); found && strings.Contains(rest, "/") {
		return rest, true, true
	}
	return key, false, strings.Contains(key, "/")
}

// SchedulerGroup, SupervisorGroup and NotifierGroup return the consumer groups of the roles, AgentGroup that of one
// agent. RestoreGroup has no members. Schedulers commit the progress of long restores to it. The member of BatchesGroup
// that owns the only partition sends the commands of batches, and that of SchedulesGroup starts the tasks of schedules.
func (n Namespace) SchedulerGroup() string         { return string(n) + "scheduler" }
func (n Namespace) SupervisorGroup() string        { return string(n) + "supervisor" }
func (n Namespace) NotifierGroup() string          { return string(n) + "notifier" }
func (n Namespace) RestoreGroup() string           { return string(n) + "restore" }
func (n Namespace) BatchesGroup() string           { return string(n) + "batches" }
func (n Namespace) SchedulesGroup() string         { return string(n) + "schedules" }
func (n Namespace) AgentGroup(agent string) string { return string(n) + "agent." + agent }

// InstanceOf returns the instance of an agent from the ce_source of a reply: without the prefix
// "<namespace>agent/<agent>/" if it has it, else all of it.
func (n Namespace) InstanceOf(agent, source string) string {
	rest := source
	for _, part := range [...]string{string(n), "agent/", agent, "/"} { // not concatenated, since this runs for each reply
		if !strings.HasPrefix(rest, part) {
			return source
		}
		rest = rest[len(part):]
	}
	return rest
}

// Owns reports whether a topic belongs to the namespace.
func (n Namespace) Owns(topic string) bool { return strings.HasPrefix(topic, string(n)) }

// CheckReplyTo returns why a topic can't be the reply_to of a submission; nil: it can, or it is empty. Topics of the
// namespace are refused. Otherwise a submitter could make the notifier write to topics that the submitter has no
// permission for.
func (n Namespace) CheckReplyTo(topic string) *Unusable {
	switch {
	case topic == "":
		return nil
	case n.Owns(topic):
		return unusable(ReasonBadReplyTo, "reply_to %q is a topic of the namespace %q; name one of your own", topic, n)
	case strings.HasPrefix(topic, "__"):
		return unusable(ReasonBadReplyTo, "reply_to %q is a topic of Kafka's own; name one of your own", topic)
	case !TopicName(topic):
		return unusable(ReasonBadReplyTo, "reply_to %q can't be a topic's name: that has letters, digits, dots, dashes and underscores", topic)
	}
	return nil
}

// CheckTaskReplyTo is CheckReplyTo for the task with an id. The task of a schedule may also reply to the topic of schedules.
func (n Namespace) CheckTaskReplyTo(id, topic string) *Unusable {
	if topic == n.Schedules() {
		if _, _, is := ParseScheduledTask(id); is {
			return nil
		}
	}
	return n.CheckReplyTo(topic)
}

// TopicName reports whether Kafka permits the name for a topic, except for its length.
func TopicName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	})
}

// Partition returns the partition of a key among n, by murmur2 as the Java client and franz-go compute it. It must
// never change, since it assigns tasks to partitions.
func Partition(key []byte, n int32) int32 {
	return int32(murmur2(key)&0x7fffffff) % n
}

// murmur2 is Kafka's variant (org.apache.kafka.common.utils.Utils.murmur2).
func murmur2(b []byte) uint32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
		r           = 24
	)
	h := seed ^ uint32(len(b))
	for len(b) >= 4 {
		k := uint32(b[3])<<24 | uint32(b[2])<<16 | uint32(b[1])<<8 | uint32(b[0])
		b = b[4:]
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(b[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}
