package schemaregistry

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/avro"

	"github.com/waybill-run/waybill/events"
)

const everyType = `{"type":"record","name":"Order","namespace":"shop","fields":[
	{"name":"id","type":"string"},
	{"name":"n","type":"int"}, {"name":"big","type":"long"}, {"name":"f","type":"float"}, {"name":"d","type":"double"},
	{"name":"ok","type":"boolean"}, {"name":"none","type":"null"}, {"name":"raw","type":"bytes"},
	{"name":"hash","type":{"type":"fixed","name":"Hash","size":2}},
	{"name":"kind","type":{"type":"enum","name":"Kind","symbols":["PLACED","PAID"]}},
	{"name":"tags","type":{"type":"array","items":"string"}},
	{"name":"counts","type":{"type":"map","values":"long"}},
	{"name":"note","type":["null","string"],"default":null},
	{"name":"total","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
	{"name":"day","type":{"type":"int","logicalType":"date"}},
	{"name":"time","type":{"type":"int","logicalType":"time-millis"}},
	{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
	{"name":"micros","type":{"type":"long","logicalType":"timestamp-micros"}},
	{"name":"local","type":{"type":"long","logicalType":"local-timestamp-millis"}},
	{"name":"uuid","type":{"type":"string","logicalType":"uuid"}},
	{"name":"next","type":["null","shop.Order"],"default":null}
]}`

// registry is a registry with the part of the API that is used, in the form of Confluent's.
type registry struct {
	*httptest.Server
	asked atomic.Int32
	down  atomic.Bool
}

// newRegistry returns a registry with the answers for some paths.
func newRegistry(t *testing.T, answers map[string]any) *registry {
	r := &registry{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.asked.Add(1)
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		answer, has := answers[req.URL.Path]
		switch user, password, _ := req.BasicAuth(); {
		case r.down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case user != "ada" || password != "secret":
			w.WriteHeader(http.StatusUnauthorized)
			return
		case !has:
			w.WriteHeader(http.StatusNotFound)
			answer = map[string]any{"error_code": 40403, "message": "Schema not found"}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *registry) client(t *testing.T) *Client {
	c, err := Open(Options{URLs: []string{r.URL}, User: "ada", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wire(id uint32, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, id), payload...)
}

func TestDecodeEveryType(t *testing.T) {
	r := newRegistry(t, map[string]any{"/schemas/ids/7": map[string]any{"schema": everyType}})
	c := r.client(t)
	at := time.Date(2026, 11, 30, 8, 30, 0, 125e6, time.UTC)
	order := map[string]any{"id": "o-1", "n": int32(-5), "big": int64(1) << 60, "f": float32(0.1), "d": 12.5, "ok": true, "none": nil, "raw": []byte{1, 2}, "hash": []byte{3, 4},
		"kind": "PAID", "tags": []any{"a", "é"}, "counts": map[string]any{"x": int64(1)}, "note": nil, "total": big.NewRat(1250, 100), "day": at.Truncate(24 * time.Hour),
		"time": 8*time.Hour + 30*time.Minute + 125*time.Millisecond, "at": at, "micros": at, "local": at, "uuid": "0191c2a0-0000-7000-8000-000000000000", "next": nil}
	payload, err := avro.MustParse(everyType).Encode(order)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, u, err := c.Decode(t.Context(), wire(7, payload))
		if err != nil || u != nil {
			t.Fatal(err, u)
		}
		const want = `{"at":"2026-11-30T08:30:00.125Z","big":1152921504606846976,"counts":{"x":1},"d":12.5,"day":"2026-11-30","f":0.1,"hash":"AwQ=","id":"o-1","kind":"PAID",` +
			`"local":"2026-11-30T08:30:00.125","micros":"2026-11-30T08:30:00.125Z","n":-5,"next":null,"none":null,"note":null,"ok":true,"raw":"AQI=","tags":["a","é"],` +
			`"time":"08:30:00.125","total":12.50,"uuid":"0191c2a0-0000-7000-8000-000000000000"}`
		if string(got) != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
	if n := r.asked.Load(); n != 1 {
		t.Errorf("the registry was asked %d times for one schema", n)
	}
}

func TestDecodeReferences(t *testing.T) {
	r := newRegistry(t, map[string]any{
		"/schemas/ids/9": map[string]any{"schema": `{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"to","type":"shop.Address"}]}`,
			"references": []any{map[string]any{"name": "shop.Address", "subject": "address", "version": 2}}},
		"/subjects/address/versions/2": map[string]any{"subject": "address", "version": 2, "id": 3, "schema": `{"type":"record","name":"Address","namespace":"shop","fields":[{"name":"street","type":"string"}]}`},
	})
	got, u, err := r.client(t).Decode(t.Context(), wire(9, []byte("\x08Main")))
	if err != nil || u != nil || string(got) != `{"to":{"street":"Main"}}` {
		t.Errorf("got %s, %v, %v", got, u, err)
	}
}

// TestForeignNotFound has another server answer 404, as a proxy does whose registry is gone. The record isn't unusable.
func TestForeignNotFound(t *testing.T) {
	proxy := httptest.NewServer(http.NotFoundHandler())
	defer proxy.Close()
	c, err := Open(Options{URLs: []string{proxy.URL}})
	if err != nil {
		t.Fatal(err)
	}
	if _, u, err := c.Decode(t.Context(), wire(7, nil)); err == nil || u != nil {
		t.Errorf("got %v, %v; want an error of the registry", u, err)
	}
}

func TestDecodeUnusable(t *testing.T) {
	r := newRegistry(t, map[string]any{
		"/schemas/ids/1": map[string]any{"schema": `"string"`}, "/schemas/ids/2": map[string]any{"schema": `{"type":"object"}`, "schemaType": "JSON"},
		"/schemas/ids/3": map[string]any{"schema": `{"type":"nothing"}`}, "/schemas/ids/4": map[string]any{"schema": `"double"`}})
	c := r.client(t)
	for name, x := range map[string]struct {
		value  []byte
		reason events.Reason
	}{
		"empty":          {nil, events.ReasonBadAvro},
		"JSON":           {[]byte(`{"id":"o-1"}`), events.ReasonBadAvro},
		"cut":            {wire(1, []byte("\x08Ma")), events.ReasonBadAvro},
		"more":           {wire(1, []byte("\x08Main!")), events.ReasonBadAvro},
		"not UTF-8":      {wire(1, []byte("\x02\xff")), events.ReasonBadAvro},
		"NaN":            {wire(4, []byte{0, 0, 0, 0, 0, 0, 0xf8, 0x7f}), events.ReasonBadAvro},
		"other type":     {wire(2, []byte("{}")), events.ReasonUnknownSchema},
		"bad schema":     {wire(3, nil), events.ReasonUnknownSchema},
		"unknown schema": {wire(12, nil), events.ReasonUnknownSchema},
	} {
		_, u, err := c.Decode(t.Context(), x.value)
		if err != nil || u == nil || u.Reason != x.reason {
			t.Errorf("%s: got %v, %v; want %s", name, u, err, x.reason)
		}
	}
	before := r.asked.Load()
	for range 5 {
		if _, u, err := c.Decode(t.Context(), wire(12, nil)); u == nil {
			t.Errorf("got %v", err)
		}
	}
	if n := r.asked.Load() - before; n != 0 {
		t.Errorf("the registry was asked %d times again for a schema that it doesn't have", n)
	}
	c.now = func() time.Time { return time.Now().Add(2 * unknownFor) }
	if _, u, _ := c.Decode(t.Context(), wire(12, nil)); u == nil || r.asked.Load() == before {
		t.Error("a schema that was unknown is never asked for again")
	}
}

// A registry that can't answer is no reason for a dead letter.
func TestRegistryUnavailable(t *testing.T) {
	r := newRegistry(t, map[string]any{"/schemas/ids/1": map[string]any{"schema": `"string"`}})
	c := r.client(t)
	r.down.Store(true)
	if _, u, err := c.Decode(t.Context(), wire(1, []byte("\x08Main"))); err == nil || u != nil || !strings.Contains(fmt.Sprint(err), "schema 1") {
		t.Errorf("got %v, %v", u, err)
	}
	r.down.Store(false)
	if got, u, err := c.Decode(t.Context(), wire(1, []byte("\x08Main"))); string(got) != `"Main"` {
		t.Errorf("got %s, %v, %v", got, u, err)
	}
	wrong, err := Open(Options{URLs: []string{r.URL}, User: "eve", Password: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if _, u, err := wrong.Decode(t.Context(), wire(1, nil)); err == nil {
		t.Errorf("a refused login gave %v", u)
	}
}

// FuzzDecode checks that any bytes give JSON or a reason.
func FuzzDecode(f *testing.F) {
	s := avro.MustParse(everyType, conversions...)
	f.Add([]byte("\x06o-1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, u := decode(s, data)
		if (got == nil) == (u == nil) || got != nil && !json.Valid(got) {
			t.Fatalf("got %s, %v", got, u)
		}
	})
}
