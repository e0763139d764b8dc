package console

import (
	"net/http"

	"github.com/waybill-run/waybill/internal/consoleapi"
)

// route is an operation of the API.
type route struct {
	method, path string
	role         Role // required role
	stream       bool // it doesn't end by itself
	answer       func(*call) (any, error)
}

const (
	api         = consoleapi.Prefix
	openAPIPath = api + "/openapi.json"
)

// routes are all operations. A test compares them with the OpenAPI document.
var routes = []route{
	{http.MethodGet, api + "/tasks", Viewer, false, (*call).tasks},
	{http.MethodPost, api + "/tasks", Submitter, false, (*call).submit},
	{http.MethodGet, api + "/tasks/{id}", Viewer, false, (*call).task},
	{http.MethodGet, api + "/tasks/{id}/timeline", Viewer, false, (*call).timeline},
	{http.MethodGet, api + "/tasks/{id}/why", Viewer, false, (*call).why},
	{http.MethodGet, api + "/tasks/{id}/export", Viewer, false, (*call).export},
	{http.MethodGet, api + "/tasks/{id}/events", Viewer, true, (*call).taskEvents},
	{http.MethodPost, api + "/tasks/{id}/cancel", Operator, false, (*call).cancel},
	{http.MethodPost, api + "/tasks/{id}/resubmit", Operator, false, (*call).resubmit},
	{http.MethodPost, api + "/tasks/{id}/undo", Operator, false, (*call).undo},
	{http.MethodPost, api + "/tasks/{id}/release", Operator, false, (*call).release},
	{http.MethodGet, api + "/events", Viewer, true, (*call).events},
	{http.MethodGet, api + "/workflows", Viewer, false, (*call).workflows},
	{http.MethodGet, api + "/agents", Viewer, false, (*call).agents},
	{http.MethodGet, api + "/partitions", Viewer, false, (*call).partitions},
	{http.MethodGet, api + "/alerts", Viewer, false, (*call).alerts},
	{http.MethodGet, api + "/deadletters", Viewer, false, (*call).deadletters},
	{http.MethodGet, openAPIPath, Viewer, false, (*call).openAPI},
}
