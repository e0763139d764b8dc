package console

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// signalRequest is a signal to a task.
type signalRequest struct {
	taskPath
	Name string `path:"name" jsonschema:"The name of the signal."`
	Body consoleapi.SignalBody
}

// signal writes a signal in the format of `waybill.signals`. If the console has tokens, its sender is the name of the
// token.
func (c *call) signal(r *signalRequest) (*consoleapi.SignalResult, error) {
	b := &r.Body
	if b.ID == "" {
		made, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		b.ID = made.String()
	}
	s := &events.Signal{Task: string(r.Task), Name: r.Name, ID: b.ID, Data: b.Data, By: c.who.name, Claimed: b.By}
	if c.cfg.Tokens == nil {
		if s.By = ""; s.Claimed == "" {
			s.Claimed = c.who.name
		}
	}
	record := s.Record(c.cfg.Namespace, c.cfg.Source)
	if _, _, err := events.DecodeInput(events.Signals, &record); err != nil {
		return nil, unprocessable("%v", err)
	}
	if err := c.cfg.Log.Submit(c.r.Context(), record); err != nil {
		return nil, unavailable("the signal may not have been written; send it again with id %s: %v; `waybill doctor` shows what is wrong", s.ID, err)
	}
	c.status = http.StatusAccepted
	return &consoleapi.SignalResult{Task: s.Task, Name: s.Name, ID: s.ID}, nil
}
