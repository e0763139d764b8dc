package logreader_test

import (
	"context"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func configOf(t *testing.T, b *kafkatest.Broker) kafka.Config {
	return kafka.Config{Brokers: b.Addrs, Dial: b.Dial, Namespace: b.Namespace(t), ClientID: "test"}
}

func yes() bool { return true }
