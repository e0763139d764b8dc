package events

// Room is memory for what the records of one transaction are made of and nothing else
// has: their headers, and the texts in them. What is made in it is good until Reset. A nil
// Room is none: what is made without has memory of its own, and may be kept.
//
// A task of three steps writes twelve records, and each was four objects; with a Room they
// are none, once it has grown to what a transaction takes.
//
// It is not safe for concurrent use.
type Room struct {
	headers []Header
	text    []byte
	ns      Namespace // whose topics these are
	events  string
	asks    map[string]string // the request topics, by agent
	hasher  Hasher
}

const (
	roomHeaders = 1 << 10 // at first
	roomText    = 64 << 10
	// What a Room keeps at most from one transaction to the next: above what the records
	// usually take that a worker decides on at once.
	roomHeadersKept = 1 << 17
	roomTextKept    = 16 << 20
)

// Reset takes back all that was made in a Room.
func (m *Room) Reset() {
	clear(m.headers)
	m.headers, m.text = m.headers[:0], m.text[:0]
	if cap(m.headers) > roomHeadersKept {
		m.headers = nil
	}
	if cap(m.text) > roomTextKept {
		m.text = nil
	}
}

// list is an empty list with room for n headers.
func (m *Room) list(n int) []Header {
	if m == nil {
		return make([]Header, 0, n)
	}
	begin := len(m.headers)
	if begin+n > cap(m.headers) { // what is in the old one stays there
		m.headers, begin = make([]Header, 0, max(n, 2*cap(m.headers), roomHeaders)), 0
	}
	m.headers = m.headers[:begin+n]
	return m.headers[begin:begin:len(m.headers)]
}

// bytes is an empty text with room for n bytes.
func (m *Room) bytes(n int) []byte {
	if m == nil {
		return make([]byte, 0, n)
	}
	begin := len(m.text)
	if begin+n > cap(m.text) {
		m.text, begin = make([]byte, 0, max(n, 2*cap(m.text), roomText)), 0
	}
	m.text = m.text[:begin+n]
	return m.text[begin:begin:len(m.text)]
}

// hashes is who hashes what is made in m.
func (m *Room) hashes() *Hasher {
	if m == nil {
		return &Hasher{}
	}
	return &m.hasher
}

// names are the names of topics, which stay good.
func (m *Room) names(ns Namespace) *Room {
	if m.ns != ns || m.asks == nil {
		m.ns, m.events, m.asks = ns, ns.Events(), map[string]string{}
	}
	return m
}

// eventsOf is the events topic of a namespace.
func (m *Room) eventsOf(ns Namespace) string {
	if m == nil {
		return ns.Events()
	}
	return m.names(ns).events
}

// requestsOf is the request topic of an agent.
func (m *Room) requestsOf(ns Namespace, agent string) string {
	if m == nil {
		return ns.Requests(agent)
	}
	topic, ok := m.names(ns).asks[agent]
	if !ok {
		topic = ns.Requests(agent)
		m.asks[agent] = topic
	}
	return topic
}
