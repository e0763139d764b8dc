package events

import (
	"time"
)

// Header is one Kafka record header.
type Header struct {
	Key   string
	Value []byte
}

// Record is a Kafka record. The roles use it instead of a client library's type, so they depend on no client. Value and
// Key must not be changed.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	// Time is the record's timestamp; on Waybill's own topics the broker sets it (LogAppendTime). It is zero on a
	// record that wasn't produced yet.
	Time    time.Time
	Key     []byte
	Value   []byte
	Headers []Header
}

// Header returns the value of the last header named key, and whether there is one. Kafka permits repeated headers; the
// last one wins, as in the CloudEvents binding.
func (r *Record) Header(key string) (string, bool) {
	value, ok := r.lookup(key)
	return string(value), ok
}

// header is Header without a copy; nil: there is none, or its value is nil.
func (r *Record) header(key string) []byte {
	value, _ := r.lookup(key)
	return value
}

func (r *Record) lookup(key string) (value []byte, ok bool) {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == key {
			return r.Headers[i].Value, true
		}
	}
	return nil, false
}
