package events

func init() {
	for name, of := range map[string]fieldSchema{
		"dry_run":                          {typ: "boolean", text: "Only the answer is wanted: the command has no effect."},
		TypeControl + "/version":           {typ: "integer", text: "The version to migrate to."},
		"waybill.task.migrated.v1/version": {typ: "integer", text: "The version from now on."},
		"waybill.task.migrated.v1/from":    {typ: "integer", text: "The version before."},
	} {
		described[name] = of
	}
}
