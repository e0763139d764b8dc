package main

import (
	"io"
	"net/http"
	"time"
)

// handlerTransport sends requests to a handler in this process.
type handlerTransport struct{ http.Handler }

func (h handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, out := io.Pipe()
	w := &pipedResponse{header: http.Header{}, body: out, began: make(chan struct{})}
	go func() {
		h.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK) // unless it has written one
		_ = out.Close()              // returns no error
	}()
	select {
	case <-w.began:
		return &http.Response{StatusCode: w.status, Header: w.sent, Body: body, Request: r, ContentLength: -1, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}, nil
	case <-r.Context().Done():
		_ = body.Close() // returns no error
		return nil, r.Context().Err()
	}
}

// pipedResponse writes a response into a pipe. It supports http.ResponseController; a reader in this process needs no
// deadlines.
type pipedResponse struct {
	header, sent http.Header
	body         *io.PipeWriter
	status       int
	began        chan struct{} // closed when status and sent are set
}

func (w *pipedResponse) Header() http.Header            { return w.header }
func (*pipedResponse) Flush()                           {}
func (*pipedResponse) SetReadDeadline(time.Time) error  { return nil }
func (*pipedResponse) SetWriteDeadline(time.Time) error { return nil }
func (w *pipedResponse) WriteHeader(status int) {
	if w.status == 0 {
		w.status, w.sent = status, w.header.Clone()
		close(w.began)
	}
}

func (w *pipedResponse) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}
