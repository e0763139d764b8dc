package waybill_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/waybill-run/waybill"
	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/deploy/kafka/node"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// A wrong password isn't reported as unreachable brokers. A caller that retries while brokers are unreachable would
// wait forever.
func TestWrongPasswordIsNotUnreachable(t *testing.T) {
	c := kafkatest.KafkaCluster(t, node.Options{
		Listeners: map[string]string{"SECURE": "SASL_PLAINTEXT"},
		Overrides: map[string]string{
			"sasl.enabled.mechanisms":                     "PLAIN",
			"listener.name.secure.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";`,
		},
	})
	for _, sasl := range []waybill.SASL{{Mechanism: "PLAIN", User: "alice", Password: "wrong"}, {Mechanism: "SCRAM-SHA-256", User: "alice", Password: "secret"}} {
		cfg := waybill.Config{Brokers: c.Listener("SECURE"), SASL: sasl}
		_, err := waybill.Open(t.Context(), cfg)
		served := waybill.Serve(t.Context(), cfg, "a", agent.HandlerFunc(nil))
		for _, err := range []error{err, served} {
			if !errors.Is(err, kafkaadmin.ErrLogin) || errors.Is(err, waybill.ErrUnreachable) || !strings.Contains(err.Error(), "the user and the password") {
				t.Errorf("%s: got %v", sasl.Mechanism, err)
			}
		}
	}
	cfg := waybill.Config{Brokers: c.Listener("SECURE"), SASL: waybill.SASL{Mechanism: "PLAIN", User: "alice", Password: "secret"}}
	if _, err := waybill.Open(t.Context(), cfg); err == nil || errors.Is(err, kafkaadmin.ErrLogin) {
		t.Errorf("alice, of a namespace that isn't there: %v", err)
	}
}
