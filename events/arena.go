package events

// Arena holds the headers and texts of the records of one transaction. They are valid until Reset. With a nil Arena
// each record has memory of its own, and may be retained.
//
// It exists to avoid allocations: a record consists of about four objects. Once an Arena has grown to the size of a
// transaction, records allocate nothing.
//
// An Arena is not safe for concurrent use.
type Arena struct {
	headers       []Header
	text          []byte
	ns            Namespace // of the cached names of topics
	eventsName    string
	requestTopics map[string]string // request topics by agent
	hasher        Hasher
}

const (
	arenaHeadersFirst = 1 << 10 // the first block
	arenaTextFirst    = 64 << 10
	// Reset keeps at most this capacity. It exceeds what a worker usually writes in one transaction.
	arenaHeadersKeptMax = 1 << 17
	arenaTextKeptMax    = 16 << 20
)

// Reset frees the memory for reuse. Everything that was made in the Arena becomes invalid.
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

// newHeaders returns an empty list with the capacity of n headers.
func (m *Arena) newHeaders(n int) []Header {
	if m == nil {
		return make([]Header, 0, n)
	}
	begin := len(m.headers)
	if begin+n > cap(m.headers) { // earlier headers stay in the old block
		m.headers, begin = make([]Header, 0, max(n, 2*cap(m.headers), arenaHeadersFirst)), 0
	}
	m.headers = m.headers[:begin+n]
	return m.headers[begin:begin:len(m.headers)]
}

// newBytes returns an empty text with the capacity of n bytes.
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

// getHasher returns the Arena's Hasher, or a new one without an Arena.
func (m *Arena) getHasher() *Hasher {
	if m == nil {
		return &Hasher{}
	}
	return &m.hasher
}

// cacheTopics caches the names of the topics of ns. Reset keeps them.
func (m *Arena) cacheTopics(ns Namespace) *Arena {
	if m.ns != ns || m.requestTopics == nil {
		m.ns, m.eventsName, m.requestTopics = ns, ns.Events(), map[string]string{}
	}
	return m
}

// eventsTopic returns the events topic of a namespace.
func (m *Arena) eventsTopic(ns Namespace) string {
	if m == nil {
		return ns.Events()
	}
	return m.cacheTopics(ns).eventsName
}

// requestsTopic returns the request topic of an agent.
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
