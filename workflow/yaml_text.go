package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"

	"github.com/waybill-run/waybill/events"
)

// YAML returns the definition as YAML, in the order of its canonical form. ParseYAML gives an equal definition. Comments
// and the layout of the file that it was parsed from aren't kept.
func (d *Definition) YAML() []byte {
	in := json.NewDecoder(bytes.NewReader(d.JSON()))
	in.UseNumber()
	w := yamlWriter{in: in}
	if err := w.value(0); err != nil && !errors.Is(err, io.EOF) {
		panic("workflow: the canonical form isn't JSON: " + err.Error())
	}
	return bytes.TrimLeft(w.out.Bytes(), "\n")
}

// yamlWriter writes JSON as YAML, value by value.
type yamlWriter struct {
	in  *json.Decoder
	out bytes.Buffer
}

var (
	plainWord     = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_./-]*$`)
	plainDuration = regexp.MustCompile(`^([0-9]+(ms|s|m|h))+$`)
	// reservedWords are words that some version of YAML reads as something else than text.
	reservedWords = map[string]bool{"true": true, "false": true, "null": true, "yes": true, "no": true, "on": true, "off": true, "y": true, "n": true, "nan": true, "inf": true}
)

// value writes the next value. An object or a list that isn't empty starts on a line of its own.
func (w *yamlWriter) value(indent int) error {
	token, err := w.in.Token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return w.object(indent)
		}
		return w.list(indent)
	case string:
		w.out.WriteString(" " + yamlString(token))
	case json.Number:
		w.out.WriteString(" " + token.String())
	case bool:
		w.out.WriteString(map[bool]string{true: " true", false: " false"}[token])
	default:
		w.out.WriteString(" null")
	}
	return nil
}

// object writes the rest of an object.
func (w *yamlWriter) object(indent int) error {
	if !w.in.More() {
		w.out.WriteString(" {}")
	}
	for w.in.More() {
		name, err := w.in.Token()
		if err != nil {
			return err
		}
		w.out.WriteString("\n" + strings.Repeat("  ", indent) + yamlString(name.(string)) + ":")
		if err := w.value(indent + 1); err != nil {
			return err
		}
	}
	_, err := w.in.Token()
	if indent == 0 {
		w.out.WriteString("\n")
	}
	return err
}

// list writes the rest of a list: on one line if its items are.
func (w *yamlWriter) list(indent int) error {
	begin, oneLine := w.out.Len(), true
	var items []string
	for w.in.More() {
		w.out.WriteString("\n" + strings.Repeat("  ", indent) + "-")
		at := w.out.Len()
		if err := w.value(indent + 1); err != nil {
			return err
		}
		item := string(w.out.Bytes()[at:])
		oneLine = oneLine && !strings.Contains(item, "\n")
		items = append(items, strings.TrimSpace(item))
	}
	if oneLine {
		w.out.Truncate(begin)
		w.out.WriteString(" [" + strings.Join(items, ", ") + "]")
	}
	_, err := w.in.Token()
	return err
}

// yamlString returns a text as a plain scalar if every parser reads it as text, else in double quotes, in which YAML has
// the escapes of JSON.
func yamlString(s string) string {
	if plainDuration.MatchString(s) || plainWord.MatchString(s) && !reservedWords[strings.ToLower(s)] {
		return s
	}
	text, err := events.EncodeJSON(s)
	if err != nil {
		panic("workflow: a text that isn't JSON: " + err.Error())
	}
	return string(text)
}
