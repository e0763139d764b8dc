package events

// HeaderStatusQuery is the header of a submission that asks for the status of its task (Submission.StatusQuery). Its value
// is "true".
const HeaderStatusQuery = "waybill_ask"

// StatusQueryHeader returns the header of a submission that asks for the status of its task. The answer is a
// notification.
func StatusQueryHeader() Header { return Header{HeaderStatusQuery, []byte("true")} }
