package http

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/suite"
)

// A host may accept connections and send nothing. Such a connection is closed after dialTimeout, although the calls
// that opened it ended before.
func TestHandshakeThatHangsIsGivenUp(t *testing.T) {
	usual := dialTimeout
	dialTimeout = 200 * time.Millisecond
	defer func() { dialTimeout = usual }()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ended := make(chan error, 1)
	go func() {
		conn, err := silent.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, conn) // until the connection ends
			conn.Close()
		}
		ended <- err
	}()
	a := newAgent(t, Config{URL: "https://" + silent.Addr().String() + "/{operation}"})
	r := testRequest()
	r.CompleteBy = time.Now().Add(50 * time.Millisecond)
	if out, f := handle(t, a, r); f == nil {
		t.Errorf("answered %q", out)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(suite.Patience):
		t.Error("the connection stays, long after its call")
	}
}
