package kafkatest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/deploy/kafka/node"
)

// Authorizer are the overrides of a node that permits everybody everything,
// until Forbid says otherwise of a topic.
func Authorizer() map[string]string {
	return map[string]string{
		"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found": "true",
	}
}

// Forbid leaves a topic to a user that no client of a test is: reading, writing
// and asking for it are refused from now on. The broker needs Authorizer.
func (b *Broker) Forbid(t testing.TB, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adminDurationMax)
	defer cancel()
	acl := kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
		Allow("User:somebody-else").AllowHosts("*").Operations(kadm.OpAll)
	b.create(ctx, t, acl)
}

func (b *Broker) create(ctx context.Context, t testing.TB, acl *kadm.ACLBuilder) {
	t.Helper()
	created, err := kadm.NewClient(b.Client(t)).CreateACLs(ctx, acl)
	if err == nil {
		for _, c := range created {
			if c.Err != nil {
				err = c.Err
			}
		}
	}
	if err != nil {
		t.Fatalf("create ACLs on the %s broker: %v", b.Kind, err)
	}
}

// secure is the listener of those who have to say who they are.
const secure = "SECURE"

// Password is that of every user of a Guarded cluster.
const Password = "secret"

// Guarded are the options of a node with a second listener, at which these users log in and may do
// what Permit says, and nothing else. Who comes by the first may do everything.
func Guarded(users ...string) node.Options {
	login := "org.apache.kafka.common.security.plain.PlainLoginModule required"
	for _, u := range users {
		login += fmt.Sprintf(" user_%s=%q", u, Password)
	}
	return node.Options{Listeners: map[string]string{secure: "SASL_PLAINTEXT"}, Overrides: map[string]string{
		"sasl.enabled.mechanisms": "PLAIN",
		"listener.name." + strings.ToLower(secure) + ".plain.sasl.jaas.config": login + ";",
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS",
	}}
}

// GuardedAddrs is where the users of a Guarded cluster come in.
func GuardedAddrs(c *node.Cluster) []string { return c.Listener(secure) }

// Right is what a user may do with a topic, a group or a transactional id, or with all whose names
// begin so.
type Right struct {
	Resource  Resource
	Name      string
	Prefix    bool
	Operation string // Kafka's name
}

// Resource is what a right is of.
type Resource int

// The resources.
const (
	Topic Resource = iota
	Group
	TransactionalID
)

// Permit gives a user of a Guarded cluster rights.
func (b *Broker) Permit(t testing.TB, user string, rights ...Right) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adminDurationMax)
	defer cancel()
	for _, r := range rights {
		op, err := kmsg.ParseACLOperation(r.Operation)
		if err != nil {
			t.Fatal(err)
		}
		acl, pattern := kadm.NewACLs().Allow("User:"+user).AllowHosts("*").Operations(op), kadm.ACLPatternLiteral
		if r.Prefix {
			pattern = kadm.ACLPatternPrefixed
		}
		switch acl.ResourcePatternType(pattern); r.Resource {
		case Group:
			acl.Groups(r.Name)
		case TransactionalID:
			acl.TransactionalIDs(r.Name)
		default:
			acl.Topics(r.Name)
		}
		b.create(ctx, t, acl)
	}
}

// RevokeAll takes all rights from a user of a Guarded cluster.
func (b *Broker) RevokeAll(t testing.TB, user string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adminDurationMax)
	defer cancel()
	all := kadm.NewACLs().Allow("User:" + user).AllowHosts().Operations().ResourcePatternType(kadm.ACLPatternAny).
		AnyResource().Topics().Groups().TransactionalIDs()
	deleted, err := kadm.NewClient(b.Client(t)).DeleteACLs(ctx, all)
	if err == nil {
		for _, d := range deleted {
			if d.Err != nil {
				err = d.Err
			}
		}
	}
	if err != nil {
		t.Fatalf("delete the ACLs of %s on the %s broker: %v", user, b.Kind, err)
	}
}
