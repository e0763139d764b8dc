package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// recreated is the error of a session whose topic was deleted and created again.
type recreated struct{}

func (recreated) Error() string   { return "the topic was created again" }
func (recreated) Recreated() bool { return true }

// After the topic was recreated, the agent continues with a new session. Requests in progress are finished. It is no
// error that the old session can't commit.
func TestAgentOfARecreatedTopicGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sessions []*fakeSession
		var left error
		cfg := Config{
			Open: func(context.Context) (Session, error) {
				sessions = append(sessions, newFakeSession())
				return sessions[len(sessions)-1], nil
			},
			Listener: Listener{Left: func(reason error) { left = reason }},
		}
		last := newFakeSession()
		last.closed = true
		stop := start(t, last, cfg, completes)
		advance(time.Second)
		sessions[0].deliver(testRecord(1, time.Now().Add(time.Minute)))
		advance(time.Second)
		sessions[0].failPoll(recreated{})
		advance(time.Second)
		if len(sessions) != 2 || !sessions[0].calls().closed || !isRecreated(left) {
			t.Fatalf("%d sessions, left by %v", len(sessions), left)
		}
		sessions[1].deliver(testRecord(2, time.Now().Add(time.Minute)))
		advance(time.Second)
		stop()
		if sessions[0].outcome(testID(1)) != "completed" || sessions[1].outcome(testID(2)) != "completed" {
			t.Error("a request wasn't completed")
		}
	})
}
