package kafkaadmin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// TestFrozenBrokerDelaysNoPing: a broker that accepts connections and never answers is the first of the list, and another
// one answers. Ping returns while the frozen one's connection is open: it doesn't wait for its end.
func TestFrozenBrokerDelaysNoPing(t *testing.T) {
	t.Parallel()
	frozen, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer frozen.Close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		conn, err := frozen.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, conn)
	}()
	_, cfg := fake(t)
	cfg.Brokers = append([]string{frozen.Addr().String()}, cfg.Brokers...)
	must(t, openAdmin(t, cfg).Ping(bounded(t)))
	select {
	case <-closed:
		t.Error("Ping has waited until the client gave the frozen broker up")
	default:
	}
}

// TestPingSaysWhyInOneLine: each reason is there once.
func TestPingSaysWhyInOneLine(t *testing.T) {
	t.Parallel()
	_, cfg := fake(t)
	cfg.Brokers = []string{"127.0.0.1:1", "127.0.0.2:1"}
	err := openAdmin(t, cfg).Ping(bounded(t))
	if text := err.Error(); strings.Contains(text, "\n") || !strings.HasPrefix(text, "no Kafka broker answers at [127.0.0.1:1 127.0.0.2:1]: ") ||
		strings.Count(text, "127.0.0.1:1: ") != 1 || strings.Count(text, "127.0.0.2:1: ") != 1 {
		t.Error(text)
	}
}

// TestErrorOfAMissingRight: whatever command fails because of an ACL says what to do, once. So does a refused log-in.
func TestErrorOfAMissingRight(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("look up topic t: %w", kerr.TopicAuthorizationFailed), "the ACLs of its principal"},
		{fmt.Errorf("%w at [b:9092]; check the SASL mechanism, the user and the password: %w", kafkaadmin.ErrLogin, kerr.SaslAuthenticationFailed), "check the SASL mechanism"},
		{fmt.Errorf("look up topic t: %w", kerr.UnknownTopicOrPartition), "look up topic t"},
	} {
		if got := kafkaadmin.WithAdvice(c.err).Error(); !strings.Contains(got, c.want) || strings.Count(got, "check ") > 1 || !strings.HasSuffix(got, c.err.Error()) {
			t.Errorf("%q", got)
		}
	}
}

// TestFormatIsReadFromTheNextLeader: the leader of the definitions can't be reached for a while, and another broker answers.
// The format is read as soon as a leader is reached.
func TestFormatIsReadFromTheNextLeader(t *testing.T) {
	t.Parallel()
	c, cfg := fake(t, kfake.NumBrokers(2))
	ctx := bounded(t)
	if _, err := openAdmin(t, cfg).CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	leader := c.ListenAddrs()[c.LeaderFor(cfg.Namespace.Definitions(), 0)]
	var refused atomic.Int32
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == leader && refused.Add(1) <= 20 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("refused by the test")}
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	if f, err := openAdmin(t, cfg).Format(ctx); err != nil || f.Partitions != 1 || refused.Load() <= 20 {
		t.Errorf("%+v, %v after %d dials", f, err, refused.Load())
	}
}
