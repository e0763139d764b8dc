package kafkatest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
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
	created, err := kadm.NewClient(b.Client(t)).CreateACLs(ctx, acl)
	if err == nil {
		for _, c := range created {
			if c.Err != nil {
				err = c.Err
			}
		}
	}
	if err != nil {
		t.Fatalf("forbid topic %s on the %s broker: %v", topic, b.Kind, err)
	}
}
