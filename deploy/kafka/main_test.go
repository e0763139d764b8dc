package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// Standard output is for scripts: the bootstrap servers, once they serve.
func TestRunPrintsWhereItListensAndEndsWhenAsked(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	kafkatest.NeedKafka(t)
	ctx, interrupt := context.WithCancel(t.Context())
	out, stdout := io.Pipe()
	var stderr bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"--port", "0"}, stdout, &stderr)
		ended <- errors.Join(err, stdout.Close())
	}()
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("no address: %v, %v", err, <-ended)
	}
	addr := strings.TrimSpace(line)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Errorf("printed before it listens: %v", err)
	} else if err := conn.Close(); err != nil {
		t.Error(err)
	}
	interrupt()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("standard output goes on with %q, %v", rest, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, &stderr)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Errorf("%s listens after the end", addr)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--nodes", "x"}, {"--nodes", "2"}, {"up"}, {"--nodse", "3"}} {
		var stdout, stderr bytes.Buffer
		if err := run(t.Context(), args, &stdout, &stderr); !errors.Is(err, errUsage) || stderr.Len() == 0 || stdout.Len() > 0 {
			t.Errorf("%q gives %v, %q, %q", args, err, &stdout, &stderr)
		}
	}
}
