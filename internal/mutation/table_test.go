package mutation

import "slices"

// mutations are all there are, by what they break.
func mutations() []mutation {
	return slices.Concat(kafkaMutations, logMutations, decisionMutations, laneMutations, flowMutations, readerMutations)
}

// one is a mutation of one place.
func one(name, file, old, new, pkg string, fail ...string) mutation {
	return mutation{name: name, edits: []edit{{file, old, new}}, pkg: pkg, fail: fail}
}

// kafkaMutations: what makes a lane's transaction one with its input, and its
// owner the only one.
var kafkaMutations = []mutation{
	one("fence", "internal/kafka/restore_fence.go",
		`if err := r.fence(ctx, id); err != nil {`, `if err := error(nil); err != nil {`,
		"internal/kafka", "TestReadFencesADeadLaneAndNobodyElse"),
	{name: "generation-in-offset-commit", pkg: "internal/kafka", fail: []string{"TestPositionsAreCommittedByAGeneration"}, edits: []edit{
		{"internal/kafka/lane_commit.go", "	bounded, cancel := context.WithTimeout(ctx, l.cfg.TransactionTimeout)\n	defer cancel()\n	committed, err", `	bounded, cancel := context.WithTimeout(ctx, l.cfg.TransactionTimeout)
	defer cancel()
	bounded = kgo.PreTxnCommitFnContext(bounded, func(req *kmsg.TxnOffsetCommitRequest) error {
		req.Generation, req.MemberID, req.InstanceID = -1, "", nil
		return nil
	})
	committed, err`},
		{"internal/kafka/lane_commit.go", "	\"github.com/twmb/franz-go/pkg/kgo\"\n", "	\"github.com/twmb/franz-go/pkg/kgo\"\n	\"github.com/twmb/franz-go/pkg/kmsg\"\n"},
	}},
	one("offsets-in-transaction", "internal/kafka/lane_commit.go",
		`committed, err = l.session.End(bounded, kgo.TryCommit)`,
		`err = l.session.Client().EndTransaction(bounded, kgo.TryCommit); committed = err == nil`,
		"internal/kafka", "TestLaneCommitsOutputAndPositionTogether"),
	one("partition-that-moved", "internal/kafka/lane_commit.go",
		`if l.skipped || l.moved() {`, `if l.skipped {`,
		"internal/kafka", "TestCommitOfAPartitionThatWentAndCameBack"),
	one("lane-passes-markers", "internal/kafka/lane_poll.go",
		`if l.passed {`, `if false {`,
		"internal/kafka", "TestIdleLanesPassMarkers"),
	one("partitions-that-were-added", "internal/kafka/lane.go",
		`	l.balancer.takeAdded = true
`, ``,
		"internal/kafka", "TestPartitionsThatAreAddedToAnInbox"),
	one("comes-anew-with-an-added-one", "internal/kafka/balancer.go",
		`ok && slices.Equal(b.beside[p], beside[p]) {`, `ok {`,
		"internal/kafka", "TestPartitionWithAnAddedOneComesAnew"),
	one("lane-forgets-a-topic-made-anew", "internal/kafka/lane_commit.go",
		`			l.session.Client().PurgeTopicsFromProducing(refused.Topic)
`, ``,
		"internal/kafka", "TestLaneWritesToATopicThatIsMadeAnew"),
	one("producer-forgets-a-topic-made-anew", "internal/kafka/producer.go",
		`		if isRemade(err) {`, `		if false {`,
		"internal/kafka", "TestProducerWritesToATopicThatIsMadeAnew"),
	one("replies-to-a-topic-made-anew", "internal/kafka/session_send.go",
		`	if remade != "" {`, `	if false {`,
		"internal/kafka", "TestRepliesToATopicThatIsMadeAnew"),
	one("a-refusal-bars-an-agent", "scheduler/lane.go",
		`refused.Permanent() && l.refusals > 1 {`, `refused.Permanent() {`,
		"scheduler", "TestRequestTopicMadeAnew"),
	one("session-passes-markers", "internal/kafka/session.go",
		`		case r.Attrs.IsControl():
			o.tracker.Done(r.Offset)
`, `		case r.Attrs.IsControl():
`,
		"internal/kafka", "TestSessionsReadCommittedRequestsOnly"),
	one("follower-holds", "internal/kafka/follow_poll.go",
		`f.client.PollRecords(ended, 0)`, `_ = ended`,
		"internal/kafka", "TestFollowerKeepsItsPartitionsWhileItsCallerWorks"),
	one("epoch-of-what-was-read", "internal/kafka/fetch.go",
		`p.LastFetchedEpoch = r.in.epoch`, `p.LastFetchedEpoch = none`,
		"internal/kafka", "TestFollowerIsToldWhereLogsPart"),
	one("leader-that-moved", "internal/kafka/fetch.go",
		`	f.client.ForceMetadataRefresh()
	return nil
}`, `	return nil
}`,
		"internal/kafka", "TestFollowerGoesWhereItsPartitionsAreLed"),
	one("transaction-without-input", "internal/kafka/lane_commit.go",
		`if l.polled == 0 {`, `if l.polled < 0 {`,
		"internal/kafka", "TestLaneCommitWithoutPollPanics"),
	one("outcome-in-doubt", "internal/kafka/lane_commit.go",
		`return false, l.fail("end a transaction", err)`, `return false, nil`,
		"internal/kafka", "TestLostAnswerToEnd"),
	one("high-watermark", "internal/kafka/restore.go",
		`{"end", r.admin.ListEndOffsets, &end}`, `{"end", r.admin.ListCommittedOffsets, &end}`,
		"internal/kafka", "TestReadWaitsForATransactionThatIsEnding"),
	{name: "ownership-by-callbacks", pkg: "internal/kafka", fail: []string{"TestIdleLanesKnowWhatTheyOwn"}, edits: []edit{
		{"internal/kafka/lane.go", "		kgo.Balancers(l.balancer),\n", `		kgo.Balancers(l.balancer),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { l.called(m, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { l.called(m, false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { l.called(m, false) }),
`},
		{"internal/kafka/lane.go", `func (l *Lane) flushMax()`, `func (l *Lane) called(m map[string][]int32, came bool) {
	l.callMu.Lock()
	defer l.callMu.Unlock()
	for _, ps := range m {
		for _, p := range ps {
			if _, has := l.byCall[p]; came && !has {
				l.calls++
				l.byCall[p] = l.calls
			} else if !came {
				delete(l.byCall, p)
			}
		}
	}
}

func (l *Lane) flushMax()`},
		{"internal/kafka/lane.go", "	inCommit sync.Mutex // held by Commit and Abort\n", `	inCommit sync.Mutex // held by Commit and Abort
	callMu   sync.Mutex
	byCall   map[int32]uint64
	calls    uint64
`},
		{"internal/kafka/lane.go", `resumed: map[int32]uint64{}, polledFrom`, `byCall: map[int32]uint64{}, resumed: map[int32]uint64{}, polledFrom`},
		{"internal/kafka/lane.go", "	l.seen = l.balancer.Assigned()\n", `	l.callMu.Lock()
	defer l.callMu.Unlock()
	l.seen = map[int32]uint64{}
	for p, n := range l.byCall {
		l.seen[p] = n
	}
`},
	}},
	one("member-forgotten-by-the-group", "internal/kafka/balancer.go",
		`if before != b.member && len(b.owned) > 0 {`, `if false && before != b.member {`,
		"internal/kafka", "TestAForgottenMemberGivesUpEverything"),
	one("paused-until-restored", "internal/kafka/lane.go",
		`client.PauseFetchPartitions(l.balancer.flow(cfg.Topics, added...))`, `_ = client`,
		"internal/kafka", "TestLanePausesWhatMayNotAct"),
	one("open-at-a-kill", "internal/kafka/embedded/broker.go",
		`	if !clean {`, `	if !clean && o.DataDir == "" {`,
		"internal/kafka/embedded", "TestKilledInATransaction"),
}

// logMutations: the vocabulary, its fold and its rules.
var logMutations = []mutation{
	one("budget", "events/policy.go",
		`case failures < p.Attempts.MaxAttempts:`, `case failures <= p.Attempts.MaxAttempts:`,
		"events", "TestBudget", "TestPolicyTranscript"),
	one("one-cool-down", "events/policy.go",
		`return p.Attempts.CoolDown > 0 && !p.CooledDown &&`, `return p.Attempts.CoolDown > 0 &&`,
		"events", "TestBudget", "TestPolicyTranscript"),
	one("epoch-unclaimed", "events/evolve.go",
		`} else if e.Epoch != p.Epoch {`, `} else if e.Epoch < p.Epoch {`,
		"events", "TestPartitionEvolve"),
	one("at-falls-in-the-fold", "events/evolve.go",
		`if e.At.Before(p.At) {`, `if e.At.IsZero() {`,
		"events", "TestPartitionEvolve"),
	one("sum-of-a-last-event", "events/sum.go",
		`case *PartitionClaimed, *TaskProcessed, *TaskUndone, *TaskCancelled, *TaskHeld:`, `case *PartitionClaimed, *TaskProcessed, *TaskUndone, *TaskCancelled:`,
		"internal/verify", "TestAnyChangedByteIsFound"),
	one("sum-of-what-comes-while-held", "events/sum.go",
		`return before != nil && before.State == StateError`, `return false`,
		"internal/verify", "TestAnyChangedByteIsFound"),
	one("changed-event-is-named", "internal/verify/chain.go",
		`return fault(t.open.offset, fmt.Sprintf(`, `return fault(r.Offset, fmt.Sprintf(`,
		"internal/verify", "TestAnyChangedByteIsFound"),
	one("gap-in-seq", "events/evolve.go",
		`case e.Seq != t.Seq+1:`, `case e.Seq <= t.Seq:`,
		"events", "TestRefused"),
	one("chain", "events/evolve.go",
		`case e.Prev != t.Prev:`, `case false:`,
		"events", "TestRefused"),
	one("clone-of-what-changes", "events/state.go",
		`	t.edition++ // from here on the steps are nobody's own
`, ``,
		"events", "TestHistories"),
	one("undo-of-a-shared-step", "events/state.go",
		`	if s.Undo != nil {
		undo := *s.Undo`, `	if false {
		undo := *s.Undo`,
		"events", "TestHistories"),
	one("unknown-effect-is-remembered", "events/evolve.go",
		`s.Unknown = s.Unknown || f.Kind == Do && f.Effect != EffectNone`, `_ = s`,
		"scheduler", "TestTranscripts"),
}

const (
	decide = "scheduler/decide.go"
	plan   = "scheduler/plan.go"
)

// decisionMutations: what follows from an input.
var decisionMutations = []mutation{
	one("reply-of-another-attempt", decide,
		` || run.Attempt != r.Ref.Attempt {`, ` {`,
		"scheduler", "TestTranscripts"),
	one("reply-twice", decide,
		`if run == nil || run.State != events.StepRunning || run`, `if run == nil || run`,
		"scheduler", "TestTranscripts"),
	one("timer-of-a-recovery", decide,
		`if !ok || timer.Seq != r.Timer {`, `if !ok {`,
		"scheduler", "TestTranscripts"),
	one("recovery-before-its-due", decide,
		`if timer.Due.Sub(d.now) > clockTolerance {`, `if timer.Due.Sub(d.now) < 0 {`,
		"scheduler", "TestTranscripts"),
	{name: "budget-is-the-supervisors", pkg: "scheduler", fail: []string{"TestTranscripts"}, edits: []edit{
		{decide, `if ask.Action != r.Action && !late && !longer {`, `if false && !late && !longer {`},
		{decide, "	switch ask.Action {\n	case events.ActionRetry:\n		switch", "	switch r.Action {\n	case events.ActionRetry:\n		switch"},
	}},
	one("undo-of-unknown-effects", plan,
		`case s.Unknown && s.CompletedSeq == 0:`, `case s.Unknown && s.CompletedSeq == 1:`,
		"scheduler", "TestTranscripts"),
	one("undo-order", plan,
		`u == unknown && at > order {`, `u == unknown && at < order {`,
		"scheduler", "TestTranscripts"),
	one("unknown-first", plan,
		`u && !unknown || u == unknown`, `!u && unknown || u == unknown`,
		"scheduler", "TestTranscripts"),
	one("undo-beside-an-attempt", plan,
		"		if s.State == events.StepRunning {\n			return\n		}", "",
		"scheduler", "TestTranscripts"),
	one("attempt-within-the-task", plan,
		`if k == events.Do && d.Task.CompleteBy.Before(by) {`, `if k != events.Do && k != events.Undo {`,
		"scheduler", "TestTranscripts"),
	one("id-used-twice", "scheduler/submit.go",
		`if s.Digest() != d.Task.Digest {`, `if s.Digest() == "" {`,
		"scheduler", "TestTranscripts"),
}

// laneMutations: the scheduler's loop.
var laneMutations = []mutation{
	one("brings-what-is-in-added-partitions", "scheduler/transaction.go",
		`if r.Partition >= l.cfg.Partitions {`, `if false {`,
		"scheduler", "TestOffsetsOfAnAddedPartition"),
	one("skip-by-cause", "scheduler/transaction.go",
		`if r.Offset < s.state.Reflected[inbox] {`, `if r.Offset < 0 {`,
		"scheduler", "TestInputsBelowReflectedAreSkipped"),
	one("at-never-falls", "scheduler/lane.go",
		`if now.Before(s.state.At) {`, `if now.IsZero() {`,
		"scheduler", "TestAtNeverFalls"),
	one("epoch-of-a-claim", "scheduler/transaction.go",
		`epoch := s.state.Epoch + 1`, `epoch := max(1, s.state.Epoch)`,
		"scheduler", "TestClaimOnceForEachAssignment"),
	one("unknown-while-loading", "scheduler/transaction.go",
		`!ok && !p.tasks.Knows(task) {`, `!ok && task == "" {`,
		"scheduler", "TestInputsWhileFinishedTasksAreLoaded"),
	one("dead-letter", "scheduler/transaction.go",
		"		if !ok {\n			return err", "		if !ok || unusable != nil {\n			return err",
		"scheduler", "TestPoisonStopsNobody"),
	one("stopped-task", "scheduler/transaction.go",
		`p.tasks.WhyStopped(task); stopped {`, `p.tasks.WhyStopped(task); stopped && why == "" {`,
		"scheduler", "TestNewerEventStopsItsTaskOnly"),
	one("forwarded-once", "scheduler/transaction.go",
		`if hop, ok := r.Header(events.HeaderHop); ok {`, `if hop, ok := r.Header(events.HeaderHop); ok && hop == "" {`,
		"scheduler", "TestPlacement"),
	one("bound-of-a-forward", "scheduler/transaction.go",
		`n > MaxForwardBytes {`, `n > MaxForwardBytes && task == "" {`,
		"scheduler", "TestForwardIsBounded"),
	one("bound-of-an-error", "scheduler/decide.go",
		`len(value) <= MaxFailureBytes {`, `len(value) >= 0 {`,
		"scheduler", "TestErrorsAreBounded"),
	one("room-of-what-was-rolled-back", "scheduler/transaction.go",
		`if tx.committed {`, `if tx.room != nil {`,
		"scheduler", "TestRoomOfWhatWasRolledBack"),
	one("rolled-back-is-forgotten", "scheduler/lane.go",
		"		l.cfg.Listener.aborted()\n		return tx.forget()\n	}\n	l.refusals = 0", "		l.cfg.Listener.aborted()\n		tx.accept()\n		return nil\n	}\n	l.refusals = 0",
		"scheduler", "TestAbortDropsTheSpeculativeState"),
	one("state-of-an-assignment-before", "scheduler/partition.go",
		`if gen, ok := assigned[id]; !ok || gen != p.generation {`, `if gen, ok := assigned[id]; !ok || gen == 0 {`,
		"scheduler", "TestClaimOnceForEachAssignment"),
}

// readerMutations: those who read the log, and the agents.
var readerMutations = []mutation{
	{name: "offset-in-the-batch", pkg: "projections", fail: []string{"TestOffsetIsInTheBatchOfItsData"}, edits: []edit{
		{"projections/view.go", "		return b.Set(v.keys.key(kindMeta, \"\"), encodeMeta(v.next, &v.state), nil)\n	})\n",
			"		return nil\n	})\n	if err == nil {\n		_, err = v.s.write(func(b *pebble.Batch) error {\n			return b.Set(v.keys.key(kindMeta, \"\"), encodeMeta(v.next, &v.state), nil)\n		})\n	}\n"},
	}},
	one("chunk-of-a-rollback", "projections/snapshot.go",
		"	s, o := &v.snap, &v.s.o.Snapshots\n	s.pending = nil\n", "	s, o := &v.snap, &v.s.o.Snapshots\n	v.SnapshotWritten()\n",
		"projections", "TestSnapshotAndTailAreTheRebuild"),
	one("large-task-in-one-record", "projections/snapshot.go",
		`case tooLarge(k):`, `case tooLarge(k) && v.closed:`,
		"projections", "TestLargeTasksAreInTheSnapshot"),
	one("task-without-its-last-part", "events/snapshot_part.go",
		`if r.of > 0 {`, `if r.of < 0 {`,
		"projections", "TestPartsThatDontFit"),
	one("snapshot-of-the-time-before", "projections/tasks.go",
		`if r.Offset < v.until && en.task != nil && e.Seq <= en.task.Seq {`, `if v.closed {`,
		"projections", "TestSnapshotAndTailAreTheRebuild"),
	one("half-loaded", "projections/snapshot_read.go",
		`func([]byte) error { half = true; return nil }`, `func([]byte) error { return nil }`,
		"projections", "TestLoadingCutShort"),
	one("alert-that-is-over", "projections/alerts.go",
		`	h.ended = &Alert{EndedAt: e.At, EndedBy: by}`, `	_ = h.ended`,
		"projections", "TestAlertsAreThoseOfTheLog"),
	one("past-alerts-by-their-holds", "projections/alerts.go",
		`if len(added) > 0 && added[0] < oldest {`, `if len(added) > 0 && oldest == math.MaxInt64 {`,
		"projections", "TestAlertsAreThoseOfTheLog"),
	one("unsaved-task-leaves-memory", "projections/open.go",
		`case !en.open || en.changed: // over`, `case !en.open: // over`,
		"projections", "TestWhatIsInMemoryChangesNothing"),
	one("snapshot-keeps-what-ended-cold", "projections/open.go",
		`snapshot: c.snapshot, listed: listed`, `listed: listed`,
		"projections", "TestWhatIsInMemoryChangesNothing"),
	one("applied-twice", "projections/view.go",
		`return r.Offset >= v.next, nil`, `return true, nil`,
		"projections", "TestTasksAreTheFoldHoweverTheyCameToBe"),
	one("directory-of-something-else", "projections/identity.go",
		`if d := id.differs(stored); d != "" {`, `if d := id.differs(stored); d == "?" {`,
		"projections", "TestRefusals"),
	one("stopped-task-has-no-timer", "projections/deadlines.go",
		`v.reconcile(tt, nil)`, `v.timers(tt)`,
		"projections", "TestPoisonSilencesItsTaskOnly"),
	one("timer-of-a-step", "projections/armed.go",
		"	if tt.bySlot != nil {\n		delete(tt.bySlot, a.slot())\n	}", "",
		"projections", "TestDeadlinesOfATaskOfManySteps"),
	one("index-entry-that-stays", "projections/index.go",
		`if !slices.Contains(after, f) {`, `if !slices.Contains(after, f) && at.Task == "" {`,
		"projections", "TestListIsWhatTheFoldSays"),
	one("page-goes-on-a-task-late", "projections/list.go",
		`next := first.at.justBefore()`, `next := first.at`,
		"projections", "TestListIsWhatTheFoldSays"),
	one("rows-of-an-older-build", "projections/rows.go",
		`found.Format == rowsFormat && found.Next == v.next`, `found.Format == rowsFormat`,
		"projections", "TestTimelinesThatAnOlderBuildWentOnWith"),
	one("values-that-are-lost", "projections/values.go",
		`d.s.fail(d.s.damaged(err))`, `_ = d.s.damaged(err)`,
		"projections", "TestDamagedValuesStopAnOpenStore"),
	one("values-not-looked-for", "projections/store.go",
		`		if err := s.checkValues(lock); err != nil {`, `		if err := s.checkValues(lock); err != nil && lock == nil {`,
		"projections", "TestLostFilesAreNoticed"),
	one("finished-in-memtables-alone", "projections/tasks.go",
		`v.unflushed.add(en.task.ID)`, `_ = v.unflushed`,
		"projections", "TestLookupsSeeWhatIsWritten"),
	one("on-disk-too-soon", "projections/unflushed.go",
		`ended > u.beforeAt`, `ended >= u.beforeAt`,
		"projections", "TestLookupsSeeWhatIsWritten"),
	one("looked-for-while-it-is-loaded", "projections/snapshot_read.go",
		`	v.unflushed.any(always) // until Loaded`, ``,
		"projections", "TestLookupsSeeASnapshot"),
	one("line-that-was-changed", "internal/replay/sum.go",
		`return uint32(n) == sumOf(r), nil`, `return uint32(n) == sumOf(r) || sum != "", nil`,
		"internal/replay", "TestChangedLines"),
	one("waited-for-what-is-polled", "internal/instance/audit.go",
		`if owned && at.Next >= offset {`, `if owned && at.End >= offset {`,
		"internal/instance", "TestAuditAnswersWhileItRebuilds"),
	one("who-may-command", "internal/console/console.go",
		`if err == nil && who.role < route.role {`, `if err == nil && who.role < Viewer {`,
		"internal/console", "TestTokens"),
	one("whose-page-is-asked", "internal/console/auth.go",
		`if err != nil || u.Host != r.Host {`, `if err != nil || u.Host == "?" {`,
		"internal/console", "TestRefusals"),
	one("page-of-another-filter", "internal/console/page.go",
		`if err == nil && t.Filter != filterDigest(filter) {`, `if err == nil && t.Filter == "" {`,
		"internal/console", "TestPageTokens"),
	one("merged-past-the-first-stop", "internal/console/list.go",
		`compareCursors(cursorOf(v), *m.until) > 0 })`, `compareCursors(cursorOf(v), *m.until) > 2 })`,
		"internal/console", "TestMergedPageEndsAtTheFirstStop"),
	one("stream-that-worked", "cmd/waybill/asked.go",
		`if came || !opened.IsZero() && ended.Sub(opened) > streamSteady {`, `if came {`,
		"cmd/waybill", "TestBrokenStreams"),
	one("page-without-end", "internal/console/newest.go",
		`keep > 0 && bytes+next.bytes > noticesMaxBytes {`, `keep > 0 && bytes < 0 {`,
		"internal/console", "TestNewestIsBoundedInBytes", "TestLargeDeadletters"),
	one("meant-for-another-system", "internal/console/system.go",
		`meant.Differs(c.system()) {`, `meant.Differs(c.system()) && r == nil {`,
		"internal/console", "TestMeantForAnotherSystem"),
	one("answer-of-another-system", "internal/console/system.go",
		`if of := Marked(answer); of != c.system() {`, `if of := Marked(answer); of == (System{}) {`,
		"internal/console", "TestPeerOfAnotherSystem"),
	one("console-of-another-system", "cmd/waybill/announced.go",
		`case !of.Differs(c.system):`, `case !of.Differs(c.system) || c.found:`,
		"cmd/waybill", "TestCheckSystem"),
	one("missing-by-the-coordinator", "internal/console/peers.go",
		`if _, ok := reflected[p]; ok {`, `if _, ok := reflected[p]; ok || c.peers.urls[p] != "" {`,
		"internal/console", "TestPartitionThatNobodyReadsIsMissing", "TestMinOffsetOfAPartitionThatNobodyReads"),
	one("counted-by-two", "internal/console/peers.go",
		`return !slices.Contains(wanted, partitionText(p))`, `return wanted == nil`,
		"internal/console", "TestPartitionThatTwoRead"),
	one("asked-before-caught-up", "supervisor/sweep.go",
		`if !p.restored || p.sending || local`, `if p.sending || local`,
		"supervisor", "TestNothingIsAskedBeforeCaughtUp"),
	one("behind-goes-by-the-logs-time", "supervisor/sweep.go",
		`p.behind && at.Before(now) {`, `p.behind && at.IsZero() {`,
		"supervisor", "TestWhoIsBehindGoesByTheLogsTime"),
	one("asked-again", "supervisor/decide.go",
		`pause: pause(d.Asked)}`, `pause: 1000 * MaxPause}`,
		"supervisor", "TestLostRecoveryIsAskedForAgain"),
	one("late-request-is-not-begun", "agent/attempt.go",
		"	if !now.Before(a.req.CompleteBy) {\n		return next{do: doStop}\n	}\n	return next{do: doCall}", "	return next{do: doCall}",
		"agent", "TestLateIsNotBegun"),
	{name: "late-reply-is-not-sent", pkg: "agent", fail: []string{"TestUnacknowledgedReplyIsSentAgainUntilItsTimeIsOver"}, edits: []edit{
		{"agent/work.go", `if left <= 0 {`, `if left <= -time.Hour {`},
		{"agent/work.go", `t.beginContext(t.sending, left)`, `t.beginContext(t.sending, left+time.Hour)`},
		{"agent/work.go", `t.patience(min(wait, t.req.CompleteBy.Sub(t.clock.now())))`, `t.patience(wait)`},
	}},
	one("context-outlives-its-call", "agent/work.go",
		`if n.do != doReply {`, `if n.do > doLeave {`,
		"agent", "TestContextOfACallEndsWithIt"),
	one("circuits-without-bound", "agent/circuit.go",
		`if !ok && c.n >= circuitsMax {`, `if !ok && c.n < 0 {`,
		"agent", "TestCircuitsAreBounded"),
	one("request-of-the-record", "events/message.go",
		`q.IdempotencyKey, _ = r.Header(HeaderIdempotencyKey)`, `q.IdempotencyKey = aliased(r.header(HeaderIdempotencyKey))`,
		"events", "TestDecodedRequestKeepsNothingOfItsRecord"),
	one("reply-ends-with-the-grace", "agent/work.go",
		`errors.Is(t.ctx.Err(), context.Canceled) && t.sending.Err() == nil`, `errors.Is(t.ctx.Err(), context.Canceled) && t.sending.Err() != nil`,
		"agent", "TestReplyOutlivesTheGrace"),
	one("reply-over-by-the-clock", "internal/kafka/session_send.go",
		`has && !time.Now().Before(by) {`, `has && by.IsZero() {`,
		"internal/kafka", "TestAReplyWhoseTimeIsOverIsRefusedAtOnce"),
	one("what-waited-tells-the-time", "internal/kafka/clock_tail.go",
		`case age <= tailExact:`, `case age <= tailWithin:`,
		"internal/kafka", "TestWhatWaitedTellsNoTime"),
	one("wrong-clock-stays", "internal/kafka/clock_tail.go",
		`case age <= tailWithin:`, `case age <= tailExact:`,
		"internal/kafka", "TestOldTailTellsNoTime"),
	one("slow-answer-sets-the-clock", "internal/kafka/clock.go",
		`&& known <= w.difference(appendTime, to)`, `&& known < w.difference(appendTime, from)`,
		"internal/kafka", "TestClockIsSetOnlyWhereItCanNotBeRight"),
	one("lowest-unfinished-request", "internal/kafka/tracker.go",
		`if t.done[0].from == t.low {`, `if t.done[0].from >= t.low {`,
		"internal/kafka", "TestTrackerLosesNothingAndRepeatsOnlyWhatItForgot"),
	one("late-outcome-is-silence", "agent/attempt.go",
		"	case !now.Before(a.req.CompleteBy):\n		return a, next{do: doStop}\n	case r.fail == nil:", "	case r.fail == nil:",
		"agent", "TestAfter"),
	one("time-goes-on-while-stopped", "agent/work.go",
		`at := c.began.Add(time.Since(c.start))`, `at := c.began.Add(0 * time.Since(c.start))`,
		"agent", "TestClockThatFallsBackGivesNoTime"),
	one("rejection-after-an-effect", "agent/attempt.go",
		`case r.fail.Rejected && !a.touched:`, `case r.fail.Rejected:`,
		"agent", "TestAfter"),
}
