// Package metric says what the exporters of metrics count of notices: each name of package
// schema once, and what it measures.
package metric

import (
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/schema"
)

// Kind says what a metric's values are.
type Kind int

// Kinds of metrics.
const (
	Count Kind = iota // counts that add up
	Level             // how many there are now
	Age               // how old something is now, in seconds
	Time              // durations in milliseconds
	Units             // sums that may have a fraction
	Share             // 0 or 100, whose average is a percentage
)

// Metric is one of All.
type Metric struct {
	Name string
	Kind Kind
	Of   string // what is counted, or the unit of a value
}

// All are the metrics of package schema.
var All = []Metric{
	{schema.MetricClaimed, Count, "attempt"},
	{schema.MetricTookOver, Count, "attempt"},
	{schema.MetricExecuted, Count, "attempt"},
	{schema.MetricReplayed, Count, "call"},
	{schema.MetricInFlight, Count, "call"},
	{schema.MetricAccepted, Count, "call"},
	{schema.MetricOutcomeUnknown, Count, "call"},
	{schema.MetricKeyReused, Count, "call"},
	{schema.MetricLimitExceeded, Count, "call"},
	{schema.MetricPaused, Count, "call"},
	{schema.MetricKeyless, Count, "call"},
	{schema.MetricCompleted, Count, "attempt"},
	{schema.MetricFailed, Count, "attempt"},
	{schema.MetricReleased, Count, "attempt"},
	{schema.MetricParked, Count, "attempt"},
	{schema.MetricStepInterrupted, Count, "step"},
	{schema.MetricUncommitted, Count, "attempt"},
	{schema.MetricResultOmitted, Count, "attempt"},
	{schema.MetricLeaseLost, Count, "attempt"},
	{schema.MetricOutOfTime, Count, "call"},
	{schema.MetricStoreUnavailable, Count, "call"},
	{schema.MetricCircuitOpened, Count, "circuit"},
	{schema.MetricFailedOpen, Count, "call"},
	{schema.MetricUnreadable, Count, "record"},
	{schema.MetricWithdrawn, Count, "claim"},
	{schema.MetricOutcomeQueued, Count, "write"},
	{schema.MetricOutcomeLanded, Count, "write"},
	{schema.MetricOutcomeDropped, Count, "write"},
	{schema.MetricDuplicate, Share, "%"},
	{schema.MetricShadowExecuted, Count, "call"},
	{schema.MetricShadowDuplicate, Count, "call"},
	{schema.MetricShadowKeyReused, Count, "call"},
	{schema.MetricShadowRefused, Count, "call"},
	{schema.MetricClaimTime, Time, "ms"},
	{schema.MetricHandlerTime, Time, "ms"},
	{schema.MetricFinishTime, Time, "ms"},
	{schema.MetricWriteUnits, Units, "unit"},
	{schema.MetricReadUnits, Units, "unit"},
	{schema.MetricSweepParked, Count, "record"},
	{schema.MetricSweepPostponed, Count, "record"},
	{schema.MetricSweepFailed, Count, "record"},
	{schema.MetricAbandoned, Count, "record"},
	{schema.MetricProbed, Count, "record"},
	{schema.MetricResolved, Count, "record"},
	{schema.MetricEscalated, Count, "record"},
	{schema.MetricNotStarted, Count, "record"},
	{schema.MetricSwept, Count, "sweep"},
	{schema.MetricSweepLeft, Count, "record"},
	{schema.MetricExpired, Count, "item"},
	{schema.MetricOpen, Level, "record"},
	{schema.MetricOldestOpen, Age, "s"},
	{schema.MetricOutboxMissed, Level, "message"},
	{schema.MetricOutboxOldest, Age, "s"},
	{schema.MetricOutboxRelayed, Count, "message"},
	{schema.MetricOutboxFailed, Count, "try"},
	{schema.MetricOutboxDead, Count, "message"},
	{schema.MetricOutboxDeferred, Count, "message"},
	{schema.MetricOutboxUnreadable, Count, "message"},
	{schema.MetricOutboxLeft, Count, "message"},
	{schema.MetricLedgerDifferences, Level, "difference"},
	{schema.MetricLedgerMissingHere, Count, "entry"},
	{schema.MetricLedgerMissingThere, Count, "record"},
	{schema.MetricLedgerDifferent, Count, "entry"},
	{schema.MetricLedgerDoubled, Count, "entry"},
	{schema.MetricLedgerUnread, Count, "entry"},
	{schema.MetricLedgerCompared, Count, "entry"},
}

var numbers = func() map[string]int {
	byName := make(map[string]int, len(All))
	for i, m := range All {
		byName[m.Name] = i
	}
	return byName
}()

// Number is a metric's place in All, and whether there is one of the name.
func Number(name string) (int, bool) {
	i, ok := numbers[name]
	return i, ok
}

// TimeOf is the name of the metric of a notice's Took, empty if it has none.
func TimeOf(n *notice.Notice) string {
	if n.Took <= 0 {
		return ""
	}
	switch n.Kind {
	case notice.Claimed, notice.TookOver:
		return schema.MetricClaimTime
	case notice.Executed:
		return schema.MetricHandlerTime
	}
	return schema.MetricFinishTime
}

// Duplicate is the value of [schema.MetricDuplicate] of a notice's call. Other notices have none.
func Duplicate(n *notice.Notice) (percent float64, ok bool) {
	switch n.Kind {
	case notice.Executed, notice.ShadowExecuted:
		return 0, true
	case notice.Accepted:
		return 100, n.Repeated
	case notice.Replayed, notice.InFlight, notice.Unknown, notice.Reused, notice.ShadowDuplicate, notice.ShadowReused:
		return 100, true
	}
	return 0, false
}
