package console

import (
	_ "embed"
	"encoding/json"
)

// openAPI is the API as OpenAPI 3.1 describes it.
//
//go:embed openapi.json
var openAPI []byte

func (c *call) openAPI() (any, error) { return json.RawMessage(openAPI), c.checkParams() }
