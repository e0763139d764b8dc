package kafka

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// connOver returns a connection whose first bytes must come within 4 s, its peer, and how often it was found silent.
func connOver(t *testing.T) (c *firstAnswerConn, peer net.Conn, silent *int) {
	t.Helper()
	own, peer := net.Pipe()
	silent = new(int)
	c = &firstAnswerConn{Conn: own, by: time.Now().Add(firstAnswerTimeout), silent: func() { *silent++ }}
	if err := own.SetReadDeadline(c.by); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = own.Close(), peer.Close() })
	return c, peer, silent
}

// TestSilentConnectionEndsEarly: a peer that never answers is given up long before the caller's deadline.
func TestSilentConnectionEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, silent := connOver(t)
		begin := time.Now()
		if err := c.SetReadDeadline(begin.Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != firstAnswerTimeout || *silent != 1 {
			t.Errorf("%v after %s, found silent %d times", err, time.Since(begin), *silent)
		}
	})
}

// TestAnsweredConnectionHasTheCallersDeadlines: after the first bytes only the caller's deadlines count, also the one that
// it had set before.
func TestAnsweredConnectionHasTheCallersDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, peer, silent := connOver(t)
		begin := time.Now()
		go func() {
			for range 2 {
				time.Sleep(3 * time.Second)
				_, _ = peer.Write([]byte("x"))
			}
		}()
		if err := c.SetDeadline(begin.Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != 10*time.Second || *silent != 0 {
			t.Errorf("%v after %s, found silent %d times", err, time.Since(begin), *silent)
		}
	})
}

// TestImpatientCallerFindsNobodySilent: a caller's own deadline says nothing about the peer.
func TestImpatientCallerFindsNobodySilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, silent := connOver(t)
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || *silent != 0 {
			t.Errorf("%v, found silent %d times", err, *silent)
		}
	})
}

// TestSilentAddressIsNotDialed: for a while, a dial fails at once, as if it were refused. So the client asks another broker.
func TestSilentAddressIsNotDialed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{silent: map[string]time.Time{}}
		n.markSilent("broker:9092")
		begin := time.Now()
		_, err := n.dial(context.Background(), "tcp", "broker:9092")
		if dial, is := errors.AsType[*net.OpError](err); !is || dial.Op != "dial" || dial.Timeout() || time.Since(begin) != 0 {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		time.Sleep(silentFor)
		if n.isSilent("broker:9092") || len(n.silent) != 0 || n.isSilent("other:9092") {
			t.Errorf("after %s: %v", silentFor, n.silent)
		}
	})
}
