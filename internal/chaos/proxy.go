package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Direction is a direction of a connection.
type Direction int

// The directions of the bytes between a client and its broker.
const (
	ToBroker Direction = iota
	ToClient
	directions
)

func (d Direction) String() string { return [directions]string{"to broker", "to client"}[d] }

const (
	// chunkBytes is the size of a read.
	chunkBytes = 32 << 10
	// dialTimeout bounds the proxy's connection to the broker.
	dialTimeout = 2 * time.Second
)

// Weather is the faults of the connections through a proxy. The zero value has none.
type Weather struct {
	// Cut refuses new connections and resets the existing ones.
	Cut bool
	// Hold delays all bytes of a direction until it is lifted. The connection stays open, as in a network that
	// recovers before TCP times out.
	Hold [directions]bool
	// Delay is added to every chunk, in each direction.
	Delay time.Duration
	// Share is the share of affected connections; 0: all of them. It is drawn once for each connection.
	Share float64
}

func (w Weather) String() string {
	s := ""
	if w.Cut {
		s += " cut"
	}
	for d, held := range w.Hold {
		if held {
			s += " nothing " + Direction(d).String()
		}
	}
	if w.Delay > 0 {
		s += fmt.Sprint(" delayed by ", w.Delay)
	}
	if s == "" {
		return "fair"
	}
	if w.Share > 0 {
		s += fmt.Sprintf(" for %.0f %% of the connections", 100*w.Share)
	}
	return s[1:]
}

// Proxy forwards connections to a broker, whose clients get the proxy's address. Safe for concurrent use.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	upstream string
	weather  Weather
	changed  chan struct{} // closed and replaced when the weather changes
	links    map[*link]bool
	closed   bool
}

// link is a client's connection and the one to the broker behind it.
type link struct {
	client, server net.Conn
	luck           float64 // below Weather.Share: the connection is affected
	snap           [directions]atomic.Bool
	ended          chan struct{}
	end            sync.Once
}

// ListenProxy opens a proxy on a free loopback port. It resets every connection until To is called.
func ListenProxy() (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{listener: l, changed: make(chan struct{}), links: map[*link]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the proxy's address, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// To forwards new connections to the address of a broker.
func (p *Proxy) To(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = upstream
}

// Set changes the weather. It returns after the affected connections were reset.
func (p *Proxy) Set(w Weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = w
	close(p.changed)
	p.changed = make(chan struct{})
	for l := range p.links {
		if w.Cut && w.affects(l) {
			l.reset()
		}
	}
}

func (w *Weather) affects(l *link) bool { return w.Share == 0 || l.luck < w.Share }

// Snap breaks every connection in the middle of the next frame of that direction: the receiver gets the beginning of
// the frame, and then the connection ends. It returns the number of connections.
func (p *Proxy) Snap(d Direction) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.snap[d].Store(true)
	}
	return len(p.links)
}

// Close resets all connections and stops the proxy.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	for l := range p.links {
		l.reset()
	}
	p.mu.Unlock()
	err := p.listener.Close()
	p.running.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client closed the connection before it was accepted
		}
		p.running.Go(func() { p.serve(conn) })
	}
}

// serve forwards one connection until it ends.
func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	upstream := p.upstream
	p.mu.Unlock()
	var server net.Conn
	err := errors.New("leads nowhere")
	if upstream != "" {
		server, err = net.DialTimeout("tcp", upstream, dialTimeout)
	}
	if err != nil { // as if the broker itself were unavailable
		reset(client)
		return
	}
	l := &link{client: client, server: server, luck: rand.Float64(), ended: make(chan struct{})}
	if !p.admit(l) {
		l.reset()
		return
	}
	defer p.forget(l)
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(l, ToBroker, client, server) })
	pumps.Go(func() { p.pump(l, ToClient, server, client) })
	pumps.Wait()
}

func (p *Proxy) admit(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.weather.Cut && p.weather.affects(l) {
		return false
	}
	p.links[l] = true
	return true
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// pump forwards one direction. When it ends, both do: Kafka's protocol has no half-closed connections.
func (p *Proxy) pump(l *link, d Direction, from, to net.Conn) {
	defer l.reset()
	buf := make([]byte, chunkBytes)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !p.awaitPassage(l, d) {
				return
			}
			if l.snap[d].Load() {
				// All but the last byte at most: a frame is left without its end.
				_, _ = to.Write(buf[:rand.IntN(n)]) // it is broken in any case
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// awaitPassage waits until the weather lets a chunk through, and reports whether the
// connection still lives.
func (p *Proxy) awaitPassage(l *link, d Direction) bool {
	for {
		p.mu.Lock()
		w, changed := p.weather, p.changed
		p.mu.Unlock()
		if !w.affects(l) {
			return true
		}
		if !w.Hold[d] {
			return l.wait(w.Delay)
		}
		select {
		case <-changed:
		case <-l.ended:
			return false
		}
	}
}

// wait reports whether the connection still lives after d.
func (l *link) wait(d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ended:
		return false
	}
}

func (l *link) reset() {
	l.end.Do(func() {
		close(l.ended)
		reset(l.client)
		reset(l.server)
	})
}

// reset ends a connection at once, with what is under way.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // else it ends in order, which is a fault less
	}
	_ = c.Close() // it may have ended
}
