package workflow

import (
	_ "embed"
	"sync"
)

//go:embed order.yaml
var orderYAML []byte

//go:embed definition.schema.json
var schemaJSON []byte

var order = sync.OnceValue(func() *Definition {
	d, err := ParseYAML("order.yaml", orderYAML)
	if err != nil {
		panic("workflow: the embedded sample order.yaml is broken: " + err.Error())
	}
	return d
})

// Order is the sample workflow: reserve, charge, ship. It must not be changed.
func Order() *Definition { return order() }

// Schema is the JSON Schema (draft 2020-12) of a definition, in YAML as in
// JSON, for editors and other systems.
func Schema() []byte { return append([]byte(nil), schemaJSON...) }
