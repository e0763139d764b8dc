package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/projections"
)

// ConsoleOptions say what is asked of a console.
type ConsoleOptions struct {
	Options
	// Start starts a console in the bench's process, instead of an index without
	// one, and returns its URL.
	Start func(ctx context.Context, n *instance.Instance) (url string, err error)
	// Questions of each kind are asked when the load has ended, one after another.
	Questions int
	// Rate, in tasks a second, of a second load of Seconds: while it runs it is
	// measured after how long events are visible.
	Rate    float64
	Seconds int
}

// ConsoleResult is how long a console takes.
type ConsoleResult struct {
	Tasks   int     `json:"tasks"` // finished
	Machine Machine `json:"machine"`
	// List, with a filter by state, by workflow and time, and by a state that no
	// task is in; a page of 50.
	List     Quantiles `json:"list"`
	Get      Quantiles `json:"get"`
	Timeline Quantiles `json:"timeline"`
	// Visible is from where a reader of the log saw an event to the answer that
	// has it, of a timeline that was asked for then.
	Visible       Quantiles `json:"visible"`
	VisibleRate   float64   `json:"visible_rate"` // tasks a second meanwhile
	IndexPerTask  float64   `json:"index_bytes_per_task"`
	PeakMemory    int64     `json:"peak_memory_bytes"` // of the whole process
	Load          *Result   `json:"load"`
	Verified      bool      `json:"verified"`
	VerifySeconds float64   `json:"verify_seconds"`
}

const (
	// visibleEvery is how far apart events are whose visibility is measured.
	visibleEvery = 20 * time.Millisecond
	// visibleProbes ask at once.
	visibleProbes = 4
	questionsMax  = 1_000_000
)

func (o *ConsoleOptions) check() error {
	if o.Questions < 1 || o.Questions > questionsMax || !(o.Rate > 0) || o.Rate > maxRate || o.Seconds < 1 {
		return fmt.Errorf("questions %d, rate %v, seconds %d: 1 to %d, above 0, and 1 at least", o.Questions, o.Rate, o.Seconds, questionsMax)
	}
	return o.Load.Check()
}

// RunConsole runs a load with a console, asks it about what there is, and measures
// how soon it shows what happens.
func RunConsole(ctx context.Context, o ConsoleOptions) (result *ConsoleResult, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	dir, remove, err := folder(o.Dir)
	if err != nil {
		return nil, err
	}
	defer remove()
	s, err := openSite(siteOptions{dir: dir, cluster: o.Cluster, log: o.Log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	d, err := o.Load.Definition()
	if err != nil {
		return nil, err
	}
	if err := s.prepare(ctx, o.Load.Partitions, d); err != nil {
		return nil, err
	}
	q := &questions{o: &o, site: s, result: &ConsoleResult{Machine: machine()}, want: map[events.TaskState]int{}}
	if err := q.run(ctx); err != nil {
		return nil, err
	}
	size, err := sizeOf(filepath.Join(dir, "state", projections.ViewTimelines))
	if err != nil {
		return nil, err
	}
	q.result.IndexPerTask = float64(size) / float64(q.want[events.StateProcessed]+q.want[events.StateUndone])
	q.result.PeakMemory = memory("VmHWM")
	q.result.VerifySeconds, err = s.verify(ctx, &o.Options, q.want)
	q.result.Verified = err == nil
	return q.result, err
}

// sizeOf is how many bytes the files of a folder have.
func sizeOf(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}

// questions is one run of RunConsole.
type questions struct {
	o      *ConsoleOptions
	site   *site
	url    string
	result *ConsoleResult
	want   map[events.TaskState]int
}

func (q *questions) run(ctx context.Context) error {
	first := newRun(&q.o.Options)
	err := q.serve(ctx, first, func(ctx context.Context, n *instance.Instance) error {
		if err := first.measure(ctx, n); err != nil {
			return err
		}
		q.result.Load, q.result.Tasks = first.result, first.o.Load.all()
		return q.ask(ctx, first)
	})
	if err != nil {
		return err
	}
	return q.visible(ctx)
}

// serve runs the roles of a load, with a console, for as long as drive takes. All
// tasks of the load must have ended then.
func (q *questions) serve(ctx context.Context, r *run, drive func(ctx context.Context, n *instance.Instance) error) error {
	r.site = q.site
	part := r.roles()
	part.index = false // the console has it
	part.before = func(ctx context.Context, n *instance.Instance) (err error) {
		q.url, err = q.o.Start(ctx, n)
		return err
	}
	err := q.site.serve(ctx, part, func(ctx context.Context, n *instance.Instance) error {
		if err := part.joined(ctx, n); err != nil {
			return err
		}
		return drive(ctx, n)
	})
	for state, n := range r.o.Load.ends() {
		q.want[state] += n
	}
	return err
}

// ask asks about tasks that have ended, picked at random.
func (q *questions) ask(ctx context.Context, r *run) error {
	some := func() string { return url.PathEscape(r.orders.id(rand.IntN(r.o.Load.all()))) }
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	filters := []string{"state:processed", "workflow:" + workflowName + "/1 since:" + since, "state:error"}
	var list, get, timeline Histogram
	for i := range q.o.Questions {
		for _, one := range []struct {
			of   *Histogram
			path string
		}{{&list, "/tasks?filter=" + url.QueryEscape(filters[i%len(filters)])}, {&get, "/tasks/" + some()}, {&timeline, "/tasks/" + some() + "/timeline"}} {
			began := time.Now()
			if err := q.get(ctx, one.path, nil); err != nil {
				return err
			}
			one.of.Record(time.Since(began))
		}
		q.o.progress("questions", int64(i+1), int64(q.o.Questions))
	}
	q.result.List, q.result.Get, q.result.Timeline = quantiles(&list), quantiles(&get), quantiles(&timeline)
	return nil
}

// get asks the console, and reads the whole answer.
func (q *questions) get(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, q.url+"/api/v1"+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK && into == nil:
		return fmt.Errorf("GET %s: %s: %s", path, resp.Status, body)
	case resp.StatusCode != http.StatusOK:
		return errNotYet
	case into == nil:
		return nil
	}
	return json.Unmarshal(body, into)
}

// errNotYet is of a task that isn't there yet.
var errNotYet = errors.New("not there yet")

// sighting is an event of a task that a reader of the log has seen.
type sighting struct {
	task string
	seq  int
	at   time.Time
}

// visible runs the second load, and asks for timelines of which an event was seen.
func (q *questions) visible(ctx context.Context) error {
	o := q.o.Options
	o.Load.Rate, o.Load.Inflight, o.Load.Tasks, o.Load.Warmup = q.o.Rate, 0, int(q.o.Rate)*q.o.Seconds, 0
	o.Profile = nil
	second := newRun(&o)
	seen := make(chan sighting, visibleProbes)
	var last time.Time
	second.also = func(_ int, _ string, r *kgo.Record) error {
		now := time.Now()
		if now.Sub(last) < visibleEvery {
			return nil
		}
		_, seq, err := events.EventName(&events.Record{Headers: headersOf(r)})
		if err != nil {
			return err
		}
		select {
		case seen <- sighting{string(r.Key), int(seq), now}:
			last = now
		default: // all probes are asking; the next event will do
		}
		return nil
	}
	var took Histogram
	var probes sync.WaitGroup
	failed := make(chan error, visibleProbes)
	for range visibleProbes {
		probes.Go(func() {
			for s := range seen {
				if err := q.until(ctx, s); err != nil {
					failed <- err
					return
				}
				took.Record(time.Since(s.at))
			}
		})
	}
	err := q.serve(ctx, second, func(ctx context.Context, n *instance.Instance) error {
		defer probes.Wait()
		defer close(seen)
		return second.measure(ctx, n)
	})
	close(failed)
	if err = errors.Join(err, <-failed); err != nil {
		return err
	}
	q.result.Visible, q.result.VisibleRate = quantiles(&took), second.result.TasksPerSecond
	return nil
}

func headersOf(r *kgo.Record) []events.Header {
	hs := make([]events.Header, len(r.Headers))
	for i, h := range r.Headers {
		hs[i] = events.Header{Key: h.Key, Value: h.Value}
	}
	return hs
}

// until asks for a timeline until it has an event.
func (q *questions) until(ctx context.Context, s sighting) error {
	var v struct {
		Lines []struct{} `json:"lines"`
	}
	for {
		err := q.get(ctx, "/tasks/"+url.PathEscape(s.task)+"/timeline", &v)
		if err == nil && len(v.Lines) >= s.seq {
			return nil
		}
		if err != nil && !errors.Is(err, errNotYet) {
			return err
		}
	}
}
