package workflow

import _ "embed"

//go:embed order.yaml
var orderYAML []byte

//go:embed definition.schema.json
var schemaJSON []byte

// Order returns the sample workflow: reserve, charge, ship. The caller owns it.
func Order() *Definition {
	d, err := ParseYAML("order.yaml", orderYAML)
	if err != nil {
		panic("workflow: the embedded sample order.yaml is broken: " + err.Error())
	}
	return d
}

// Schema returns the JSON Schema (draft 2020-12) of a definition. It applies to YAML and to JSON, for editors and other
// tools.
func Schema() []byte { return append([]byte(nil), schemaJSON...) }
