package events

// HeaderAsk is the header of a submission that asks for the status of its task (Submission.Ask). Its value is "true".
const HeaderAsk = "waybill_ask"

// AskHeader returns the header of a submission that asks for the status of its task. The answer is a notification.
func AskHeader() Header { return Header{HeaderAsk, []byte("true")} }
