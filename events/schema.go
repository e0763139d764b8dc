package events

import (
	"embed"
	"io/fs"
)

//go:embed schema/*.schema.json
var schemaFiles embed.FS

// Schemas are the JSON Schemas (draft 2020-12) of what other systems read and
// write: "<type>.schema.json" for each event and for each record of another
// topic. They forbid no further members: within a version, changes are
// additive. A member that is zero, false or empty is left out.
func Schemas() fs.FS {
	sub, err := fs.Sub(schemaFiles, "schema")
	if err != nil {
		panic("events: " + err.Error()) // the name is a constant, and valid
	}
	return sub
}
