package chaos

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/suite"
)

// echo starts a server that returns each line unchanged.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // the test is over
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn) // until either side closes it
			}()
		}
	}()
	return l.Addr().String()
}

func openProxy(t *testing.T) *Proxy {
	t.Helper()
	p, err := ListenProxy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// echoConn is one connection through a proxy.
type echoConn struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dialEcho(t *testing.T, p *Proxy) *echoConn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // many are already broken
	return &echoConn{t, conn, bufio.NewReader(conn)}
}

func (l *echoConn) send(s string) error {
	_, err := io.WriteString(l.conn, s+"\n")
	return err
}

// receive returns the data received within d.
func (l *echoConn) receive(d time.Duration) (string, error) {
	l.t.Helper()
	if err := l.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		l.t.Fatal(err)
	}
	s, err := l.in.ReadString('\n')
	return s, err
}

const (
	proxySilence = 100 * time.Millisecond
)

func (l *echoConn) mustReceive(want string) {
	l.t.Helper()
	if got, err := l.receive(suite.Patience); err != nil || got != want+"\n" {
		l.t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

func (l *echoConn) mustSend(s string) {
	l.t.Helper()
	if err := l.send(s); err != nil {
		l.t.Fatal(err)
	}
}

// mustBreak waits for the end of the connection.
func (l *echoConn) mustBreak() {
	l.t.Helper()
	if got, err := l.receive(suite.Patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		l.t.Fatalf("heard %q, %v; want the end", got, err)
	}
}

func (l *echoConn) mustBeSilent() {
	l.t.Helper()
	if got, err := l.receive(proxySilence); !errors.Is(err, os.ErrDeadlineExceeded) {
		l.t.Fatalf("heard %q, %v; want nothing", got, err)
	}
}

// mustBeRefused dials and expects an error, at once or at the first read.
func mustBeRefused(t *testing.T, p *Proxy) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return
	}
	defer conn.Close()
	(&echoConn{t, conn, bufio.NewReader(conn)}).mustBreak()
}

func TestProxyCuts(t *testing.T) {
	p := openProxy(t)
	mustBeRefused(t, p) // no target is set yet
	p.To(echo(t))
	a := dialEcho(t, p)
	a.mustSend("1")
	a.mustReceive("1")
	p.Set(Weather{Cut: true})
	a.mustBreak()
	mustBeRefused(t, p)
	p.Set(Weather{})
	b := dialEcho(t, p)
	b.mustSend("2")
	b.mustReceive("2")
}

// Held data arrives late, also if the client closed its connection.
func TestProxyHoldsOneWay(t *testing.T) {
	for d := range directions {
		p := openProxy(t)
		p.To(echo(t))
		a := dialEcho(t, p)
		a.mustSend("1")
		a.mustReceive("1")
		var w Weather
		w.Hold[d] = true
		p.Set(w)
		a.mustSend("2")
		a.mustBeSilent()
		p.Set(Weather{})
		a.mustReceive("2")
	}
}

func TestProxyBreaksInTheMiddle(t *testing.T) {
	for d := range directions {
		p := openProxy(t)
		p.To(echo(t))
		a, quiet := dialEcho(t, p), dialEcho(t, p)
		for _, l := range []*echoConn{a, quiet} {
			l.mustSend("1")
			l.mustReceive("1")
		}
		if n := p.Snap(d); n != 2 {
			t.Errorf("%d connections will break, of 2", n)
		}
		a.mustSend("a frame that loses its end")
		a.mustBreak()
		b := dialEcho(t, p) // a new connection isn't affected
		b.mustSend("2")
		b.mustReceive("2")
	}
}

func TestProxyDelays(t *testing.T) {
	const delay = 30 * time.Millisecond
	p := openProxy(t)
	p.To(echo(t))
	a := dialEcho(t, p)
	p.Set(Weather{Delay: delay})
	began := time.Now()
	a.mustSend("1")
	a.mustReceive("1")
	if took := time.Since(began); took < 2*delay {
		t.Errorf("there and back took %v with a delay of %v each way", took, delay)
	}
}

// A fault affects a share of the connections, and always the same ones.
func TestProxyShare(t *testing.T) {
	const lines = 40
	p := openProxy(t)
	p.To(echo(t))
	all := make([]*echoConn, lines)
	for i := range all {
		all[i] = dialEcho(t, p)
		all[i].mustSend("1")
		all[i].mustReceive("1")
	}
	p.Set(Weather{Cut: true, Share: 0.5})
	hit := 0
	for _, l := range all {
		if l.send("2") != nil {
			hit++
		} else if _, err := l.receive(suite.Patience); err != nil {
			hit++
		}
	}
	if hit == 0 || hit == lines { // probability 1e-12
		t.Errorf("%d of %d connections are cut", hit, lines)
	}
}
