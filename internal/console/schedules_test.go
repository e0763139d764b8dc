package console

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/schedule"
)

// recordedSchedules keeps schedules in memory, and what was asked.
type recordedSchedules struct {
	state *schedule.State
	asked []string
}

// newRecordedSchedules returns a schedule for each task of a recording whose id can be a schedule's name.
func newRecordedSchedules(t testing.TB, w *recording) *recordedSchedules {
	s := &recordedSchedules{state: schedule.NewState()}
	for id := range w.tasks {
		d, err := schedule.Parse("", []byte("schedule: "+id+"\nevery: 1h\nsubmit: {workflow: order}\n"))
		if err != nil {
			continue
		}
		if _, err := s.ApplySchedule(context.Background(), d, events.By{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *recordedSchedules) List() ([]schedule.Schedule, error) {
	list := []schedule.Schedule{}
	for _, k := range s.state.All() {
		list = append(list, k.View(false))
	}
	return list, nil
}

func (s *recordedSchedules) Find(name string) (*schedule.Schedule, error) {
	k := s.state.Find(name)
	if k == nil {
		return nil, schedule.ErrNotFound
	}
	v := k.View(true)
	return &v, nil
}

func (s *recordedSchedules) ApplySchedule(_ context.Context, d *schedule.Definition, by events.By) (string, error) {
	body, err := d.JSON()
	if err != nil {
		return "", err
	}
	n := events.NamedDefinition{Kind: events.ScheduleDefinition, Name: d.Name, Body: body, By: by}
	r, err := n.Record(events.DefaultNamespace, "test")
	r.Time = time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)
	s.state.ApplyDefinition(&r)
	return "created", err
}

func (s *recordedSchedules) ask(what, name string, by events.By) (string, error) {
	if s.state.Find(name) == nil {
		return "", schedule.ErrNotFound
	}
	s.asked = append(s.asked, strings.Join([]string{what, name, by.Who, by.Why}, " "))
	return what, nil
}

func (s *recordedSchedules) Pause(_ context.Context, name string, by events.By) (string, error) {
	return s.ask("paused", name, by)
}

func (s *recordedSchedules) Resume(_ context.Context, name string, by events.By) (string, error) {
	return s.ask("resumed", name, by)
}

func (s *recordedSchedules) Delete(_ context.Context, name string, by events.By) (string, error) {
	return s.ask("deleted", name, by)
}

func (s *recordedSchedules) Trigger(_ context.Context, name string, by events.By) (string, error) {
	return s.ask("triggered", name, by)
}

func (s *recordedSchedules) Backfill(_ context.Context, name string, from, to time.Time, by events.By) (string, int, error) {
	k := s.state.Find(name)
	if k == nil {
		return "", 0, schedule.ErrNotFound
	}
	n, err := k.CheckBackfill(from, to, to)
	if err != nil {
		return "", 0, err
	}
	request, err := s.ask("backfilled", name, by)
	return request, n, err
}

// TestSchedules: schedules are applied, listed and shown, and commands reach them with who sent them and why. Answers fit the
// document.
func TestSchedules(t *testing.T) {
	w := newRecording(t)
	known := &recordedSchedules{state: schedule.NewState()}
	s := w.console(t, nil)
	s.Config.Handler.(*Console).cfg.Schedules = known
	doc := readDocument(t)
	call := func(method, path, route, body string, status int) string {
		t.Helper()
		r := ask(t, s, method, api+path, body)
		if doc.fits(t, method, api+route, r); r.status != status {
			t.Errorf("%s %s: %d %s", method, path, r.status, r.body)
		}
		return r.body
	}
	const definition = `{"definition":"schedule: nightly\ncron: 0 2 * * *\nzone: Europe/Oslo\nsubmit: {workflow: order}\n","reason":"a test"}`
	call(http.MethodPost, "/schedules", "/schedules", definition, http.StatusOK)
	call(http.MethodPost, "/schedules", "/schedules", `{"definition":"schedule: nightly\n","reason":"a test"}`, http.StatusUnprocessableEntity)
	call(http.MethodPost, "/schedules", "/schedules", `{"definition":"schedule: nightly\n"}`, http.StatusBadRequest)
	if l := get[ScheduleList](t, w, s, api+"/schedules", api+"/schedules"); len(l.Schedules) != 1 || *l.Schedules[0].Next != "2026-11-27T01:00:00.000Z" {
		t.Errorf("%+v", l)
	}
	call(http.MethodGet, "/schedules/nightly", "/schedules/{id}", "", http.StatusOK)
	call(http.MethodGet, "/schedules/none", "/schedules/{id}", "", http.StatusNotFound)
	for _, command := range []string{"pause", "resume", "trigger", "delete"} {
		path, route := "/schedules/nightly/"+command, "/schedules/{id}/"+command
		call(http.MethodPost, path, route, `{"reason":"why not"}`, http.StatusOK)
		call(http.MethodPost, path, route, `{}`, http.StatusBadRequest)
		call(http.MethodPost, strings.Replace(path, "nightly", "none", 1), route, `{"reason":"why not"}`, http.StatusNotFound)
	}
	const backfill = "/schedules/nightly/backfill"
	body := call(http.MethodPost, backfill, "/schedules/{id}/backfill", `{"reason":"again","from":"2026-11-01T00:00:00Z","to":"2026-11-04T00:00:00Z"}`, http.StatusOK)
	if !strings.Contains(body, `"instants":3`) {
		t.Error(body)
	}
	call(http.MethodPost, backfill, "/schedules/{id}/backfill", `{"reason":"again","from":"soon","to":"2026-11-04T00:00:00Z"}`, http.StatusBadRequest)
	call(http.MethodPost, backfill, "/schedules/{id}/backfill", `{"reason":"again","from":"2026-11-04T00:00:00Z","to":"2026-11-04T00:00:00Z"}`, http.StatusConflict)
	if got := strings.Join(known.asked, ", "); !strings.Contains(got, "paused nightly") || !strings.Contains(got, "backfilled nightly") || !strings.Contains(got, "why not") || len(known.asked) != 5 {
		t.Error(got)
	}
}
