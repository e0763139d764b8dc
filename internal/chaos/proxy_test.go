package chaos

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo is a broker that answers each line with itself.
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
				_, _ = io.Copy(conn, conn) // until either side ends it
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

// line is one connection through a proxy.
type line struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dialLine(t *testing.T, p *Proxy) *line {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // many are broken by then
	return &line{t, conn, bufio.NewReader(conn)}
}

func (l *line) say(s string) error {
	_, err := io.WriteString(l.conn, s+"\n")
	return err
}

// hear returns what comes within d.
func (l *line) hear(d time.Duration) (string, error) {
	l.t.Helper()
	if err := l.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		l.t.Fatal(err)
	}
	s, err := l.in.ReadString('\n')
	return s, err
}

const (
	proxyPatience = 10 * time.Second
	proxySilence  = 100 * time.Millisecond
)

func (l *line) mustHear(want string) {
	l.t.Helper()
	if got, err := l.hear(proxyPatience); err != nil || got != want+"\n" {
		l.t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

func (l *line) mustSay(s string) {
	l.t.Helper()
	if err := l.say(s); err != nil {
		l.t.Fatal(err)
	}
}

// mustBreak waits for the end of the connection.
func (l *line) mustBreak() {
	l.t.Helper()
	if got, err := l.hear(proxyPatience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		l.t.Fatalf("heard %q, %v; want the end", got, err)
	}
}

func (l *line) mustBeSilent() {
	l.t.Helper()
	if got, err := l.hear(proxySilence); !errors.Is(err, os.ErrDeadlineExceeded) {
		l.t.Fatalf("heard %q, %v; want nothing", got, err)
	}
}

// mustBeRefused dials, and finds nobody: at once, or when it reads.
func mustBeRefused(t *testing.T, p *Proxy) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return
	}
	defer conn.Close()
	(&line{t, conn, bufio.NewReader(conn)}).mustBreak()
}

func TestProxyCuts(t *testing.T) {
	p := openProxy(t)
	mustBeRefused(t, p) // leads nowhere yet
	p.To(echo(t))
	a := dialLine(t, p)
	a.mustSay("1")
	a.mustHear("1")
	p.Set(Weather{Cut: true})
	a.mustBreak()
	mustBeRefused(t, p)
	p.Set(Weather{})
	b := dialLine(t, p)
	b.mustSay("2")
	b.mustHear("2")
}

// What was held arrives late, also if the client has gone.
func TestProxyHoldsOneWay(t *testing.T) {
	for d := range directions {
		p := openProxy(t)
		p.To(echo(t))
		a := dialLine(t, p)
		a.mustSay("1")
		a.mustHear("1")
		var w Weather
		w.Hold[d] = true
		p.Set(w)
		a.mustSay("2")
		a.mustBeSilent()
		p.Set(Weather{})
		a.mustHear("2")
	}
}

func TestProxyBreaksInTheMiddle(t *testing.T) {
	for d := range directions {
		p := openProxy(t)
		p.To(echo(t))
		a, quiet := dialLine(t, p), dialLine(t, p)
		for _, l := range []*line{a, quiet} {
			l.mustSay("1")
			l.mustHear("1")
		}
		if n := p.Snap(d); n != 2 {
			t.Errorf("%d connections will break, of 2", n)
		}
		a.mustSay("a frame that loses its end")
		a.mustBreak()
		b := dialLine(t, p) // a new one is whole
		b.mustSay("2")
		b.mustHear("2")
	}
}

func TestProxyDelays(t *testing.T) {
	const delay = 30 * time.Millisecond
	p := openProxy(t)
	p.To(echo(t))
	a := dialLine(t, p)
	p.Set(Weather{Delay: delay})
	began := time.Now()
	a.mustSay("1")
	a.mustHear("1")
	if took := time.Since(began); took < 2*delay {
		t.Errorf("there and back took %v with a delay of %v each way", took, delay)
	}
}

// A share of the connections is hit, and those stay hit.
func TestProxyShare(t *testing.T) {
	const lines = 40
	p := openProxy(t)
	p.To(echo(t))
	all := make([]*line, lines)
	for i := range all {
		all[i] = dialLine(t, p)
		all[i].mustSay("1")
		all[i].mustHear("1")
	}
	p.Set(Weather{Cut: true, Share: 0.5})
	hit := 0
	for _, l := range all {
		if l.say("2") != nil {
			hit++
		} else if _, err := l.hear(proxyPatience); err != nil {
			hit++
		}
	}
	if hit == 0 || hit == lines { // by chance once in 10^12
		t.Errorf("%d of %d connections are cut", hit, lines)
	}
}
