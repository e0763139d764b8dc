package listener_test

import (
	"errors"
	"testing"

	"github.com/waybill-run/waybill/internal/listener"
)

type funcs struct {
	Started func()
	Failed  func(partition int32, err error)
}

// TestComplete checks that every func can be called, that those of the user are called, and that the user's listener
// stays as it is.
func TestComplete(t *testing.T) {
	none := listener.Complete[funcs](nil)
	none.Started()
	none.Failed(1, errors.New("refused"))

	failed := int32(0)
	user := funcs{Failed: func(p int32, _ error) { failed = p }}
	some := listener.Complete(&user)
	some.Started()
	some.Failed(7, nil)
	if failed != 7 || user.Started != nil {
		t.Errorf("failed %d, want 7; the user's listener was changed: %v", failed, user.Started != nil)
	}
}

// BenchmarkUnset measures the call of a func that the user hasn't set.
func BenchmarkUnset(b *testing.B) {
	b.ReportAllocs()
	l := listener.Complete[funcs](nil)
	for b.Loop() {
		l.Failed(1, nil)
	}
}
