package chaos

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
)

var (
	chaosDuration = flag.Duration("duration", 25*time.Second, "of TestChaos: how long load and faults go on, on each broker")
	chaosPeriod   = flag.Duration("period", 0, "of TestChaos: how long one mix of faults lasts; 0: 30s, or less if the duration is short")
	chaosSeed     = flag.Uint64("seed", 3, "of TestChaos: the seed of the mix; 0: from the clock") // 3: within the default duration much happens on each kind
	chaosBroker   = flag.String("broker", "", "of TestChaos: embedded, kafka or kafka3; empty: all of them, one after the other")
	chaosFaults   = flag.String("faults", "", "of TestChaos: the kinds of faults to draw from, with commas between; empty: all")
	chaosRate     = flag.Int("rate", 0, "of TestChaos: tasks a second; 0: 30, and 6 on three nodes")
	chaosTasks    = flag.Int("tasks", 0, "of TestChaos: tasks at most; 0: as many as the rate makes")
)

const (
	periodMost = 30 * time.Second
	// periodsLeast is the minimal number of periods of a run.
	periodsLeast = 5
	// The time of a run in addition to its duration: the brokers start, the backlog drains, and all topics are read
	// again.
	endUsual = 2 * time.Minute
	// The rates are in tasks per second. Three nodes use both cores of a small machine during a drain, because each
	// restarts cold after a kill. Waybill uses about a tenth. At the usual rate the test would measure the nodes'
	// speed, so three nodes get a lower rate.
	//
	// On 2 cores, three nodes drain in 21 to 53 s at 30 tasks per second, in 27 to 30 s at 15, and in 18 to 22 s at 10.
	// With other tests in parallel it is 38 s at 15, 30 to 56 s at 10, and 22 to 25 s at 6.
	//
	// The backlog after the faults is the rate times their duration, and an agent's throughput is limited. One node
	// drains 721 open tasks in 25.9 s, 453 in 30.6 s on a busier machine, and 309 in 17.7 s. On an idle machine it
	// takes 13.9 to 17.4 s.
	rateUsual, rateThree = 15, 6
)

// TestChaos is the random mix: processes, brokers and networks fail under load, differently in each period. When all
// faults are over, all guarantees must hold.
//
//	go test ./internal/chaos -run TestChaos -duration 8h -timeout 0 -seed 7 -broker kafka3
func TestChaos(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	kinds := brokerKinds
	if *chaosBroker != "" {
		kinds = []string{*chaosBroker}
	}
	if deadline, ok := t.Deadline(); ok && time.Until(deadline) < time.Duration(len(kinds))*(*chaosDuration)+endUsual {
		t.Fatalf("-duration %s needs -timeout 0", *chaosDuration)
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			if !slices.Contains(brokerKinds, kind) {
				t.Fatalf("-broker %s: one of %q", kind, brokerKinds)
			}
			if kind != embeddedBroker {
				kafkatest.NeedKafka(t)
			}
			runMix(t, mixOptionsOf(kind))
		})
	}
}

func mixOptionsOf(kind string) mixOptions {
	o := mixOptions{broker: kind, seed: *chaosSeed, duration: *chaosDuration, period: *chaosPeriod, rate: *chaosRate, tasks: *chaosTasks}
	if *chaosFaults != "" {
		o.faults = strings.Split(*chaosFaults, ",")
	}
	if o.rate == 0 {
		if o.rate = rateUsual; kind == threeKafkas {
			o.rate = rateThree
		}
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	if o.period == 0 {
		o.period = min(periodMost, o.duration/periodsLeast)
	}
	return o
}

func runMix(t *testing.T, o mixOptions) {
	again := fmt.Sprintf("go test ./internal/chaos -run TestChaos -timeout 0 -broker %s -duration %s -period %s -rate %d -seed %d", o.broker, o.duration, o.period, o.rate, o.seed)
	t.Log(again)
	m := openMix(t, o)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what was done, and came of it (%s):\n%s", again, m.historyText())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), o.duration+suite.Patience)
	defer cancel()
	quiet := m.run(ctx)
	took := m.drain(ctx, quiet)
	t.Logf("drained in %s", took.Round(time.Millisecond))
	report := m.checkResults(ctx, quiet, took)
	select {
	case err := <-m.site.failed: // nil for the embedded broker, so never selected
		t.Error(err)
	default:
	}
	tally.Say(t, "%s: %.1f minutes, %d tasks in %d events, %d inputs, %d requests, %d effects; drained in %.1f s of %.0f", o.broker,
		o.duration.Minutes(), report.Tasks, report.Events, report.Inputs, report.Requests, report.Effects, took.Seconds(), m.drainWithin().Seconds())
	tally.Say(t, "%s: %s", o.broker, m.sum())
	m.load.seen.mu.Lock()
	refunds := m.load.seen.refunds
	m.load.seen.mu.Unlock()
	t.Logf("%d processed tasks were undone; states %v; recoveries %+v; lateness %+v; unreadable %d; digests compared %d; service %v", refunds, report.States, report.Recoveries, report.Lateness,
		report.Unreadable, report.Compared, m.service.counts())
}

// sum returns the counts of actions by kind.
func (m *mix) sum() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, what := range slices.Sorted(maps.Keys(m.counts)) {
		all = append(all, fmt.Sprintf("%d %s", m.counts[what], what))
	}
	return strings.Join(all, ", ") + fmt.Sprintf("; %d commands of operators, %d pieces of garbage, %d replies repeated, %d submissions tried again; %d processes gave up by themselves",
		m.meddlers.commands.Load(), m.meddlers.garbage.Load(), m.meddlers.parroted.Load(), m.load.retried.Load(), m.platform.ended)
}
