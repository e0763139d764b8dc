package events

// Room is memory for what the records of one transaction are made of and nothing else
// has: their headers, and the texts in them. What is made in it is good until Reset. A nil
// Room is none: what is made without has memory of its own, and may be kept.
//
// A task of three steps writes twelve records, and each was four objects; with a Room they
// are none, once it has grown to what a transaction takes.
//
// It is not safe for concurrent use.
type Arena struct {
	headers       []Header
	text          []byte
	ns            Namespace // whose topics these are
	eventsName    string
	requestTopics map[string]string // the request topics, by agent
	hasher        Hasher
}

const (
	arenaHeadersFirst = 1 << 10 // at first
	arenaTextFirst    = 64 << 10
	// What a Room keeps at most from one transaction to the next: above what the records
	// usually take that a worker decides on at once.
	arenaHeadersKeptMax = 1 << 17
	arenaTextKeptMax    = 16 << 20
)

// Reset takes back all that was made in a Room.
func (m *Arena) Reset() {
	clear(m.headers)
	m.headers, m.text = m.headers[:0], m.text[:0]
	if cap(m.headers) > arenaHeadersKeptMax {
		m.headers = nil
	}
	if cap(m.text) > arenaTextKeptMax {
		m.text = nil
	}
}

// list is an empty list with room for n headers.
func (m *Arena) newHeaders(n int) []Header {
	if m == nil {
		return make([]Header, 0, n)
	}
	begin := len(m.headers)
	if begin+n > cap(m.headers) { // what is in the old one stays there
		m.headers, begin = make([]Header, 0, max(n, 2*cap(m.headers), arenaHeadersFirst)), 0
	}
	m.headers = m.headers[:begin+n]
	return m.headers[begin:begin:len(m.headers)]
}

// bytes is an empty text with room for n bytes.
func (m *Arena) newBytes(n int) []byte {
	if m == nil {
		return make([]byte, 0, n)
	}
	begin := len(m.text)
	if begin+n > cap(m.text) {
		m.text, begin = make([]byte, 0, max(n, 2*cap(m.text), arenaTextFirst)), 0
	}
	m.text = m.text[:begin+n]
	return m.text[begin:begin:len(m.text)]
}

// hashes is who hashes what is made in m.
func (m *Arena) getHasher() *Hasher {
	if m == nil {
		return &Hasher{}
	}
	return &m.hasher
}

// names are the names of topics, which stay good.
func (m *Arena) cacheTopics(ns Namespace) *Arena {
	if m.ns != ns || m.requestTopics == nil {
		m.ns, m.eventsName, m.requestTopics = ns, ns.Events(), map[string]string{}
	}
	return m
}

// eventsOf is the events topic of a namespace.
func (m *Arena) eventsTopic(ns Namespace) string {
	if m == nil {
		return ns.Events()
	}
	return m.cacheTopics(ns).eventsName
}

// requestsOf is the request topic of an agent.
func (m *Arena) requestsTopic(ns Namespace, agent string) string {
	if m == nil {
		return ns.Requests(agent)
	}
	topic, ok := m.cacheTopics(ns).requestTopics[agent]
	if !ok {
		topic = ns.Requests(agent)
		m.requestTopics[agent] = topic
	}
	return topic
}
