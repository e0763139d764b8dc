package events

import (
	"embed"
	"io/fs"
)

//go:embed schema/*.schema.json
var schemaFiles embed.FS

// Schemas returns the JSON Schemas (draft 2020-12) of the records that other systems read and write. Each file is
// "<type>.schema.json". The schemas allow further members, since changes within a version are additive. A member that
// is zero, false or empty is omitted.
func Schemas() fs.FS {
	sub, err := fs.Sub(schemaFiles, "schema")
	if err != nil {
		panic("events: " + err.Error()) // the name is a constant, and valid
	}
	return sub
}
