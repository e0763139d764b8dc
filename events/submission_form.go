package events

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
)

// extensionPrefix begins the names of custom members of a submission, which are ignored.
const extensionPrefix = "x-"

var extension = []byte(extensionPrefix)

const submissionMembers = "id, workflow, version, input, reply_to, priority, labels, complete_by"

// submissionBody reads a submission and finds unknown members. They are refused, since one such as "inputs" is probably
// a mistake: the task would run without its input.
type submissionBody struct {
	of      *Submission
	unknown string
}

func (s *submissionBody) fields(c *codec) {
	s.of.fields(c)
	for i := range c.obj.members {
		name := c.obj.name(i)
		switch string(name) {
		case "id", "workflow", "version", "input", "reply_to", "priority", "labels", "complete_by":
		default:
			if s.unknown == "" && !bytes.HasPrefix(name, extension) {
				s.unknown = string(name)
			}
		}
	}
}

// decodeSubmissionBody reads the object of a submission.
func decodeSubmissionBody(data []byte, s *Submission) error {
	body := submissionBody{of: s}
	if err := decodeUntrusted(data, &body, 0); err != nil {
		return badJSON(err)
	}
	if body.unknown != "" {
		return unusable(ReasonBadField, "no member %q: a submission has %s; names of your own begin with %q", body.unknown, submissionMembers, extensionPrefix)
	}
	return nil
}

// body returns the data of a CloudEvent in structured mode.
func (s *structuredEvent) body() (json.RawMessage, error) {
	if s.DataBase64 == "" {
		return s.Data, nil
	}
	if len(s.Data) > 0 {
		return nil, unusable(ReasonBadField, "data and data_base64: a CloudEvent has one of them")
	}
	data, err := base64.StdEncoding.DecodeString(s.DataBase64)
	if err != nil {
		return nil, unusable(ReasonBadField, "data_base64: %v", err)
	}
	return data, nil
}
