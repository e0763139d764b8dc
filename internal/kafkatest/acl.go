package kafkatest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/deploy/kafka/node"
	"github.com/waybill-run/waybill/internal/suite"
)

// Authorizer returns the property overrides of a node with an authorizer that allows everything until Forbid.
func Authorizer() map[string]string {
	return map[string]string{
		"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found": "true",
	}
}

// Forbid restricts a topic to a user that no test client uses. From then on reads, writes and metadata requests for the
// topic are refused. The broker needs the overrides of Authorizer.
func (b *Broker) Forbid(t testing.TB, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
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

// secure is the name of the listener that requires authentication.
const secure = "SECURE"

// Password is the password of every user of a Guarded cluster.
const Password = "secret"

// Guarded returns the options of a node with a second listener, at which users authenticate with SASL PLAIN. They have
// only the rights that Permit grants. Clients of the first listener are anonymous super users.
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

// GuardedAddrs returns the addresses of the listener at which users of a Guarded cluster authenticate.
func GuardedAddrs(c *node.Cluster) []string { return c.Listener(secure) }

// Right is an operation that a user may perform on a topic, a group or a transactional id, or on all whose names begin
// with Name if Prefix is set.
type Right struct {
	Resource  Resource
	Name      string
	Prefix    bool
	Operation string // Kafka's name
}

// Resource is the resource type of a Right.
type Resource int

// The resource types.
const (
	Topic Resource = iota
	Group
	TransactionalID
)

// Permit grants rights to a user of a Guarded cluster.
func (b *Broker) Permit(t testing.TB, user string, rights ...Right) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
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

// RevokeAll deletes all ACLs of a user of a Guarded cluster.
func (b *Broker) RevokeAll(t testing.TB, user string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
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
