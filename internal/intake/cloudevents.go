package intake

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"mime"
	"slices"
	"strings"

	"github.com/waybill-run/waybill/events"
)

const (
	attributePrefix = "ce_" // of the headers of binary mode
	structuredMode  = "application/cloudevents+json"
	specVersion     = "specversion"
	dataContentType = "datacontenttype"
)

var requiredAttributes = []string{specVersion, "id", "source", "type"}

func badEvent(reason events.Reason, detail string) error {
	return &events.Unusable{Reason: reason, Detail: detail}
}

// cloudEvent returns the data of a CloudEvent. Its attributes are headers with the prefix ce_, in structured mode too.
func cloudEvent(r *events.Record) (data, headers json.RawMessage, err error) {
	contentType, _ := r.Header(events.HeaderContentType)
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case contentType != "" && err != nil:
		return nil, nil, badEvent(events.ReasonBadHeader, "content-type "+contentType+": "+err.Error())
	case media == structuredMode:
		return structuredEvent(r)
	case strings.HasPrefix(media, "application/cloudevents"):
		return nil, nil, badEvent(events.ReasonBadHeader, "content-type "+contentType+": only "+structuredMode+" is supported in structured mode")
	}
	for _, name := range requiredAttributes {
		if v, has := r.Header(attributePrefix + name); !has || v == "" {
			return nil, nil, badEvent(events.ReasonMissingHeader, "a CloudEvent in binary mode needs "+attributePrefix+name)
		}
	}
	if v, _ := r.Header(attributePrefix + specVersion); v != events.SpecVersion {
		return nil, nil, badEvent(events.ReasonBadHeader, attributePrefix+specVersion+" "+v+": only "+events.SpecVersion+" is supported")
	}
	data, err = eventData(r.Value, media)
	return data, events.HeadersJSON(r.Headers), err
}

func structuredEvent(r *events.Record) (data, headers json.RawMessage, err error) {
	if err := events.CheckJSON(r.Value); err != nil {
		return nil, nil, badEvent(events.ReasonBadJSON, err.Error())
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.Value, &members); err != nil {
		return nil, nil, badEvent(events.ReasonBadJSON, "a CloudEvent is an object: "+err.Error())
	}
	attributes := append([]events.Header(nil), r.Headers...)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		raw := members[name]
		if name == "data" || name == "data_base64" {
			continue
		}
		text := string(raw)
		if raw[0] == '"' {
			if err := json.Unmarshal(raw, &text); err != nil {
				return nil, nil, badEvent(events.ReasonBadJSON, name+": "+err.Error())
			}
		}
		attributes = append(attributes, events.Header{Key: attributePrefix + name, Value: []byte(text)})
	}
	event := events.Record{Headers: attributes}
	for _, name := range requiredAttributes {
		if v, has := event.Header(attributePrefix + name); !has || v == "" {
			return nil, nil, badEvent(events.ReasonBadField, "a CloudEvent needs "+name)
		}
	}
	if v, _ := event.Header(attributePrefix + specVersion); v != events.SpecVersion {
		return nil, nil, badEvent(events.ReasonBadField, specVersion+" "+v+": only "+events.SpecVersion+" is supported")
	}
	headers = events.HeadersJSON(attributes)
	encoded, has := members["data_base64"]
	if !has {
		return members["data"], headers, nil
	}
	var text string
	if err := json.Unmarshal(encoded, &text); err != nil {
		return nil, nil, badEvent(events.ReasonBadField, "data_base64: "+err.Error())
	}
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, nil, badEvent(events.ReasonBadField, "data_base64: "+err.Error())
	}
	media, _ := event.Header(attributePrefix + dataContentType)
	if media, _, err = mime.ParseMediaType(media); err != nil {
		media = ""
	}
	data, err = eventData(decoded, media)
	return data, headers, err
}

// eventData returns data as JSON. Data of another media type can't be used.
func eventData(data []byte, media string) (json.RawMessage, error) {
	if len(data) == 0 {
		return nil, nil
	}
	if media != "" && media != "application/json" && media != "text/json" && !strings.HasSuffix(media, "+json") {
		return nil, badEvent(events.ReasonBadHeader, "data of the type "+media+": only JSON is supported")
	}
	if err := events.CheckJSON(data); err != nil {
		return nil, badEvent(events.ReasonBadJSON, err.Error())
	}
	return bytes.TrimSpace(data), nil
}
