package events

// What a published schema says of a field. The key is the field's name, or the
// path to it where the name means something else there: "policy.timer".
var described = map[string]fieldSchema{
	// the envelope of an event
	"at":       {typ: "string", pattern: instantPattern, text: "The instant of the decision: broker time, RFC 3339, UTC, milliseconds. Never less than that of the partition's event before."},
	"cause":    {typ: "string", pattern: `^(controls|replies|recoveries|tasks)/[0-9]+/[0-9]+$`, text: "The record that led to the event: inbox/partition/offset."},
	"epoch":    {typ: "integer", text: "Of the owner's claim of the partition. Never falls."},
	"prev":     {typ: "string", pattern: `^[A-Za-z0-9_-]{22}$`, text: "Hash of the task's event before: the first 16 bytes of SHA-256 over its ce_type, a zero byte and its value, in base64url. A chain that shows tampering."},
	"sum":      {typ: "string", pattern: `^[A-Za-z0-9_-]{22}$`, text: "In an event that may be the task's last, and in a claim: the hash of its own ce_type and value, made as prev is, where the value is as it is without this member, which stands last. Absent: written by a build that had none, or the next event is sure to come."},
	"queued":   {typ: "boolean", text: "A step had to wait for its agent: the cause, which may be about another task, freed the slot that it took."},
	"instance": {typ: "string", text: "That of the agent that replied, as the reply's ce_source has it; absent: it doesn't say, or nobody replied."},
	"due":      {typ: "string", pattern: instantPattern, text: "The event arms a timer: the instant at which something must happen if nothing happened before."},
	"policy":   {typ: "object", text: "With due: what a supervisor needs to treat the timer."},

	"policy.timer":         {typ: "string", enum: []string{"task", "attempt", "failed", "waiting"}, text: "What the timer waits for: the task's complete-by, an attempt's, a failure (due at once), the end of a wait."},
	"policy.failure_count": {typ: "integer", text: "Failed and expired attempts so far, since submission or the last resubmit."},
	"policy.complete_by":   {typ: "string", pattern: instantPattern, text: "The task's. Absent while undoing, which has its own deadlines."},
	"policy.cooled_down":   {typ: "boolean", text: "The attempt past max_attempts has been granted."},
	"on_error":             {typ: "string", enum: []string{"undo", "hold"}, text: "What the task does when it can't go on."},

	"complete_within_ms": {typ: "integer", text: "How long one attempt may take, in milliseconds."},
	"max_attempts":       {typ: "integer", text: "How many attempts are made before the cool-down."},
	"backoff_ms":         {typ: "integer", text: "The wait after the first failure, in milliseconds."},
	"factor":             {typ: "number", text: "By what the wait grows with each failure."},
	"max_ms":             {typ: "integer", text: "The longest wait, in milliseconds."},
	"cool_down_ms":       {typ: "integer", text: "The long wait before one more attempt past max_attempts, in milliseconds. Absent: no such attempt."},

	// tasks
	"id":                          {typ: "string", text: "The task's id: chosen by the submitter, 1 to 256 bytes without control characters; its idempotency key."},
	"task":                        {typ: "string", text: "The task's id."},
	"workflow":                    {typ: "string", text: "The workflow's name."},
	"version":                     {typ: "integer", text: "The version of the workflow's definition. In a submission: absent means the newest."},
	"input":                       {text: "Any JSON, as it was given."},
	"output":                      {text: "Any JSON, as it was given."},
	"reply_to":                    {typ: "string", text: "A topic outside the namespace that is told of the task's statuses."},
	"priority":                    {typ: "integer", text: "Of the task among others; a larger one first."},
	"labels":                      {typ: "object", values: "string", text: "The submitter's own marks, at most 32."},
	"complete_by":                 {typ: "string", pattern: instantPattern, text: "The instant by which it must have finished."},
	"digest":                      {typ: "string", text: "Identifies the body of the submission: another body under the same id is refused."},
	"traceparent":                 {typ: "string", text: "W3C Trace Context, passed on untouched."},
	"plan":                        {typ: "object", text: "What the fold needs of the definition: reading a log needs no definition."},
	"plan.complete_within_ms":     {typ: "integer", text: "How long the whole task may take, in milliseconds."},
	"plan.steps":                  {typ: "array", text: "The steps, in the order of their indices."},
	"plan.steps.id":               {typ: "string", text: "The step's name."},
	"plan.steps.needs":            {typ: "array", items: "integer", text: "Indices of the steps that must be completed or skipped before."},
	"plan.steps.undo":             {typ: "object", text: "How the step is undone. Absent: it is passed over."},
	"ending":                      {typ: "string", enum: []string{"undone", "cancelled"}, text: "What the undoing ends in."},
	"keep":                        {typ: "boolean", text: "What completed stays as it is."},
	"owner":                       {typ: "string", text: "The scheduler instance that claimed the partition."},
	"topic_ids":                   {typ: "object", text: "The ids of the inboxes' topics that the owner reads, as Kafka's tools print them: offsets of causes from here on are positions in these. A topic that was deleted and created again has another id."},
	"topic_ids.tasks":             {typ: "string", text: "Of the topic of submissions."},
	"topic_ids.replies":           {typ: "string", text: "Of the topic of replies."},
	"topic_ids.recoveries":        {typ: "string", text: "Of the topic of recoveries."},
	"topic_ids.controls":          {typ: "string", text: "Of the topic of controls."},
	"by":                          {typ: "string", text: "Who asked for it."},
	"why":                         {typ: "string", text: "Why, in the words of who asked."},
	"request_id":                  {typ: "string", text: "The control's own id: the same again gets the same answer."},
	"error":                       {typ: "object", text: "What went wrong."},
	"error.code":                  {typ: "string", text: "One of Waybill's codes (expired, tries_exhausted, expression_failed, too_large, no_such_agent, no_such_workflow, cancelled, undo_requested) or the agent's own."},
	"error.message":               {typ: "string", text: "For people."},
	"error.step":                  {typ: "string", text: "The step that it is about."},
	"error.details":               {text: "Any JSON: what else the agent said."},
	"step":                        {typ: "string", text: "The step's name."},
	"attempt":                     {typ: "integer", text: "The attempt's number, from 1; counting goes on after a resubmit."},
	"agent":                       {typ: "string", text: "Who does it: the consumer group of this name."},
	"operation":                   {typ: "string", text: "The agent's operation."},
	"idempotency_key":             {typ: "string", text: "The same for every attempt of a step; another for its undo; renewed only by a resubmit after a rejection."},
	"effect":                      {typ: "string", enum: []string{"none", "unknown"}, text: "What the call changed in the world."},
	"cool_down":                   {typ: "boolean", text: "The wait is the long one, past max_attempts."},
	"as":                          {typ: "string", enum: []string{"completed", "undone"}, text: "What the operator states of the step."},
	"timer":                       {typ: "integer", text: "The seq of the event that armed the timer."},
	"action":                      {typ: "string", enum: []string{"retry", "wait", "undo", "hold"}, text: "What the supervisor asks for, by the policy of the event that armed the timer."},
	"kind":                        {typ: "string", enum: []string{"do", "undo"}, text: "Whether the step's own operation or its undo is meant."},
	"until":                       {typ: "string", pattern: instantPattern, text: "The end of the wait."},
	"command":                     {typ: "string", enum: []string{"cancel", "resubmit", "undo", "release"}, text: "What the operator commands."},
	"control":                     {typ: "string", text: "The control's ce_id."},
	"accepted":                    {typ: "boolean", text: "Absent or false: refused."},
	"seq":                         {typ: "integer", text: "Of the task's event that it is about. Absent: none."},
	"reason":                      {typ: "string", text: "Why it was refused."},
	"state":                       {typ: "string", enum: []string{"pending", "processing", "processed", "error", "undoing", "undone", "cancelled"}, text: "The task's state afterwards."},
	"code":                        {typ: "string", text: "The code of the error that it is about."},
	"message":                     {typ: "string", text: "For people."},
	"status":                      {typ: "string", enum: []string{"received", "refused", "processed", "error", "undoing", "undone", "cancelled"}, text: "What became of the task."},
	TypeRecovery + "/step":        {typ: "string", text: "The step whose timer it is. Absent: the task's own."},
	TypeRecovery + "/complete_by": {typ: "string", pattern: instantPattern, text: "With retry: of the attempt that is asked for."},
	TypeControl + "/step":         {typ: "string", text: "With release: the step. With resubmit: only if this step is in error."},

	// records that are described whole
	"key":                                  {typ: "string", text: "The task's id: the record's partition is murmur2 of it."},
	"headers":                              {typ: "object", text: "The record's headers, as text."},
	"headers.ce_specversion":               {typ: "string", text: "1.0"},
	"headers.ce_type":                      {typ: "string", text: "The type of the record."},
	"headers.ce_source":                    {typ: "string", text: "Who wrote it."},
	"headers.ce_id":                        {typ: "string", text: "Of the record."},
	"headers.content-type":                 {typ: "string", text: "Of the value."},
	"headers.traceparent":                  {typ: "string", text: "W3C Trace Context, as the submission had it. Pass it on."},
	"headers.ce_operation":                 {typ: "string", text: "The operation to do."},
	"headers.ce_completeby":                {typ: "string", pattern: instantPattern, text: "After this instant nobody waits for the reply: do nothing more and send nothing."},
	"headers.ce_idempotencykey":            {typ: "string", text: "The same for every attempt: a service that has seen it answers as it did and does nothing."},
	"headers.ce_request":                   {typ: "string", pattern: `^(.|\n)+/[^/]+/(do|undo)/[1-9][0-9]*$`, text: "Names the attempt: <task>/<step>/<do|undo>/<attempt>. Opaque to an agent, which copies it into the reply."},
	"headers.ce_outcome":                   {typ: "string", enum: []string{"completed", "failed", "rejected"}, text: "failed may be tried again, rejected must not be."},
	"headers.ce_effect":                    {typ: "string", enum: []string{"none", "unknown"}, text: "With failed or rejected: none says that nothing changed in the world. Absent: unknown, so the step will be undone."},
	"headers.waybill_reason":               {typ: "string", text: "Why the record can't be used; one of a closed set."},
	"headers.waybill_detail":               {typ: "string", text: "For people."},
	"headers.waybill_origin":               {typ: "string", text: "Where it was found: topic/partition/offset."},
	"headers.waybill_size":                 {typ: "string", pattern: "^[0-9]+$", text: "Of the original value, in bytes."},
	"headers.waybill_headers":              {typ: "string", text: "The original's headers that say what it is, as a JSON object of texts."},
	"headers.waybill_sha256":               {typ: "string", pattern: "^[0-9a-f]{64}$", text: "Of the original value."},
	TypeRequest + "/value":                 {text: "Any JSON: the operation's input. An undo's is an object with undo_of and what undo.input adds."},
	TypeRequest + "/value.undo_of":         {typ: "object", text: "With an undo: what is to be undone. Undoing what never happened must succeed."},
	TypeRequest + "/value.undo_of.outcome": {typ: "string", enum: []string{"completed", "unknown"}, text: "Whether it completed, or nobody knows."},
	TypeReply + "/value":                   {text: "Any JSON: the output, or an error object {code, message, details}."},
	TypeDeadletter + "/value":              {text: "The original bytes, at most 256 KiB of them: whatever they are."},
}

const instantPattern = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`

// freeform are the members of which a schema says what it knows and no more.
var freeform = map[string]bool{"input": true, "output": true, "error.details": true, "labels": true,
	TypeReply + "/value": true, TypeDeadletter + "/value": true}

// wholeRecords are described with their key and headers: an agent's author needs
// those more than the value.
var wholeRecords = map[string]bool{TypeRequest: true, TypeReply: true, TypeDeadletter: true}

// schemaTexts says what a type is, and which of its members are always there.
// Events have at, cause, epoch, and all but a first one prev, besides.
var schemaTexts = map[string]struct {
	text     string
	required []string
}{
	"waybill.partition.claimed.v1": {"An owner's first transaction in a partition begins with this.", []string{"owner"}},
	"waybill.task.received.v1":     {"A task's first event: the submission as it was accepted, and the plan.", []string{"workflow", "plan"}},
	"waybill.task.started.v1":      {"The task is being processed. due is its complete-by.", []string{"due", "policy"}},
	"waybill.task.processed.v1":    {"The end of a task as it should end.", nil},
	"waybill.task.undoing.v1":      {"The decision to undo: nothing new starts, what waits ends.", []string{"ending"}},
	"waybill.task.undone.v1":       {"The end of a task of which nothing remains.", nil},
	"waybill.task.cancelled.v1":    {"The end of a task that an operator cancelled.", nil},
	"waybill.task.held.v1":         {"The task waits for an operator.", nil},
	"waybill.task.resumed.v1":      {"The end of a hold. While processing, due is the task's new complete-by.", nil},
	"waybill.step.skipped.v1":      {"The step's when was false.", []string{"step"}},
	"waybill.step.released.v1":     {"What an operator settled by hand.", []string{"step", "as"}},

	"waybill.step.started.v1":   {"An attempt began: its request was sent in the same transaction. due is its complete-by. The input is written with the first attempt only.", []string{"step", "attempt", "due", "policy"}},
	"waybill.step.completed.v1": {"The agent did it.", []string{"step", "attempt"}},
	"waybill.step.failed.v1":    {"The agent could not do it; it may be tried again.", []string{"step", "attempt"}},
	"waybill.step.rejected.v1":  {"The agent won't ever do it.", []string{"step", "attempt"}},
	"waybill.step.expired.v1":   {"complete-by passed without a reply: the effect is unknown.", []string{"step", "attempt"}},
	"waybill.step.waiting.v1":   {"Another attempt is made at due. attempt is the one before.", []string{"step", "attempt", "due", "policy"}},
	"waybill.step.errored.v1":   {"No further attempt is made.", []string{"step"}},

	TypeSubmission:   {"Asks for a task, on the topic tasks: as the data of a CloudEvent in binary or structured mode, or as the bare object.", []string{"id", "workflow"}},
	TypeRequest:      {"What an agent is asked to do: a record of requests.<agent>, with its headers.", []string{"key", "headers", "value"}},
	TypeReply:        {"What an agent says of an attempt: a record of the topic replies, with its headers.", []string{"headers", "value"}},
	TypeRecovery:     {"What a supervisor asks for when a timer is due.", []string{"task", "timer", "action"}},
	TypeControl:      {"An operator's command. Its ce_id is repeated in the answer.", []string{"task", "command"}},
	TypeAnswer:       {"What became of a control.", []string{"task", "control"}},
	TypeAlert:        {"Something waits for an operator.", nil},
	TypeNotification: {"What the application behind a reply_to is told of its task.", []string{"id", "status"}},
	TypeDeadletter:   {"A record that can't be used: the original bytes, the rest in headers.", []string{"headers"}},
}
