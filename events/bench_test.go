package events

import (
	"reflect"
	"strings"
	"testing"
)

// firstEvent returns the sample of a task's first event, which is the largest event of most tasks.
func firstEvent() sample {
	for _, s := range eventSamples() {
		if _, ok := s.event.Fact.(*TaskReceived); ok {
			return s
		}
	}
	panic("no sample of a task that was received")
}

func BenchmarkEncodeEvent(b *testing.B) {
	for _, s := range eventSamples() {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(s.record.Value)))
			for b.Loop() {
				s.event.Value()
			}
		})
	}
}

// BenchmarkSeal measures writing and hashing the last event of a task, with its sum and without.
func BenchmarkSeal(b *testing.B) {
	e := sampleEvent(&TaskProcessed{Output: []byte(`{"tracking":"T-1"}`)}, 9)
	held := &Task{State: StateError}
	var m Arena
	b.Run("seal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.Reset()
			e.SealIn(&m, held)
		}
	})
	b.Run("value", func(b *testing.B) {
		e.Sum = ""
		b.ReportAllocs()
		for b.Loop() {
			m.Reset()
			m.getHasher().Hash(e.Fact.Type(), encodeObjectIn(&m, e))
		}
	})
}

func BenchmarkRecordOfEvent(b *testing.B) {
	s := firstEvent()
	b.ReportAllocs()
	for b.Loop() {
		s.event.Record(sampleNS, "scheduler-0", 3, s.record.Value)
	}
}

func BenchmarkDecodeEvent(b *testing.B) {
	for _, s := range eventSamples() {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(s.record.Value)))
			for b.Loop() {
				if _, err := DecodeEvent(&s.record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReadEvent measures reading events one after another, on the fast path and by the list of members.
func BenchmarkReadEvent(b *testing.B) {
	samples := eventSamples()
	var rs []Record
	for _, s := range samples {
		rs = append(rs, s.event.Record(sampleNS, "s", 3, s.event.Value()))
	}
	var d EventReader
	for _, way := range []struct {
		name   string
		decode func(*Record) (*Event, error)
	}{{"reader", d.Decode}, {"without reuse", DecodeEvent}, {"by list", byList}} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for i := range rs {
					if _, err := way.decode(&rs[i]); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rs)), "ns/event")
		})
	}
}

func BenchmarkDecodeInput(b *testing.B) {
	for _, s := range inputSamples() {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(s.record.Value)))
			for b.Loop() {
				if _, _, err := DecodeInput(s.inbox, &s.record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEncodeInput measures making the records of applications, agents, supervisors and operators.
func BenchmarkEncodeInput(b *testing.B) {
	for _, s := range inputSamples() {
		encode := func() Record { return Record{} }
		switch in := s.want.(type) {
		case *Submission:
			encode = func() Record { return in.Record(sampleNS, "shop") }
		case *Reply:
			encode = func() Record { return in.Record(sampleNS, "payments-1") }
		case *Recovery:
			encode = func() Record { return in.Record(sampleNS, "supervisor-0", 3) }
		case *Control:
			encode = func() Record { return in.Record(sampleNS, "cli") }
		}
		if !reflect.DeepEqual(encode(), s.record) {
			continue // this build doesn't write this form
		}
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(s.record.Value)))
			for b.Loop() {
				encode()
			}
		})
	}
}

func BenchmarkEncodeRequest(b *testing.B) {
	q := outputSamples()[0].want.(*Request)
	b.ReportAllocs()
	for b.Loop() {
		q.Record(sampleNS, "scheduler-0", "payments", 1)
	}
}

func BenchmarkDecodeRequest(b *testing.B) {
	s := outputSamples()[0]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRequest(&s.record); err != nil {
			b.Fatal(err)
		}
	}
}

// history returns the events of a typical task of two steps.
func history(b *testing.B) (es []*Event, hashes []string) {
	var task *Task
	for _, f := range []Fact{
		&TaskReceived{Workflow: "order", Version: 3, Input: []byte(`{"total":12.50}`), Plan: samplePlan()},
		&TaskStarted{},
		&AttemptStarted{Kind: Do, Step: "reserve", Attempt: 1, Input: []byte(`{"a":1}`)},
		&AttemptCompleted{Kind: Do, Step: "reserve", Attempt: 1, Output: []byte(`{"b":2}`)},
		&AttemptStarted{Kind: Do, Step: "charge", Attempt: 1, Input: []byte(`{"a":1}`)},
		&AttemptCompleted{Kind: Do, Step: "charge", Attempt: 1, Output: []byte(`{"b":2}`)},
		&TaskProcessed{Output: []byte(`{"c":3}`)},
	} {
		e := next(task, f)
		hash := Hash(f.Type(), e.Value())
		var err error
		if task, err = Evolve(task, e, hash); err != nil {
			b.Fatal(err)
		}
		es, hashes = append(es, e), append(hashes, hash)
	}
	return es, hashes
}

// BenchmarkEvolve folds a whole history of seven events.
func BenchmarkEvolve(b *testing.B) {
	es, hashes := history(b)
	b.ReportAllocs()
	for b.Loop() {
		var task *Task
		var err error
		for i, e := range es {
			if task, err = Evolve(task, e, hashes[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkSummaryEvolve is BenchmarkEvolve for the row of a list.
func BenchmarkSummaryEvolve(b *testing.B) {
	es, _ := history(b)
	b.ReportAllocs()
	for b.Loop() {
		var s Summary
		for _, e := range es {
			s.Evolve(e)
		}
	}
}

func BenchmarkTimersEvolve(b *testing.B) {
	es, _ := history(b)
	b.ReportAllocs()
	for b.Loop() {
		var t Timers
		for _, e := range es {
			t.Evolve(e)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	s := firstEvent()
	b.ReportAllocs()
	b.SetBytes(int64(len(s.record.Value)))
	for b.Loop() {
		Hash(s.name, s.record.Value)
	}
}

func BenchmarkHasher(b *testing.B) {
	s := firstEvent()
	var h Hasher
	b.ReportAllocs()
	b.SetBytes(int64(len(s.record.Value)))
	for b.Loop() {
		h.Hash(s.name, s.record.Value)
	}
}

func BenchmarkTask(b *testing.B) {
	es, hashes := history(b)
	var task *Task
	for i, e := range es {
		task, _ = Evolve(task, e, hashes[i])
	}
	stored := task.Encode()
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			task.Encode()
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeTask(stored); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("clone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			task.Clone()
		}
	})
}

// BenchmarkDigest measures the digest of a small submission, and of the largest.
func BenchmarkDigest(b *testing.B) {
	for _, s := range []struct{ name, input string }{
		{"order", `{"customer":"c-17","items":[{"sku":"A-1","quantity":2},{"sku":"B-7","quantity":1}],"total":12.50,"note":"ring twice"}`},
		{"sorted", `{"customer":"c-17","items":[{"quantity":2,"sku":"A-1"},{"quantity":1,"sku":"B-7"}],"note":"ring twice","total":125}`},
		{"large", `{"rows":[` + strings.Repeat(`{"sku":"A-1","quantity":2,"name":"caf\u00e9"},`, 8000) + `0]}`},
	} {
		sub := &Submission{ID: "o-1", Workflow: "order", Input: []byte(s.input), Labels: map[string]string{"region": "eu"}}
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(s.input)))
			for b.Loop() {
				sub.Digest()
			}
		})
	}
}
