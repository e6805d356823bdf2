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
)

// Metric is one of All.
type Metric struct {
	Name string
	Kind Kind
}

// All are the metrics of package schema.
var All = []Metric{
	{schema.MetricExecuted, Count},
	{schema.MetricTookOver, Count},
	{schema.MetricReplayed, Count},
	{schema.MetricInFlight, Count},
	{schema.MetricAccepted, Count},
	{schema.MetricOutcomeUnknown, Count},
	{schema.MetricKeyReused, Count},
	{schema.MetricCompleted, Count},
	{schema.MetricFailed, Count},
	{schema.MetricReleased, Count},
	{schema.MetricParked, Count},
	{schema.MetricStepInterrupted, Count},
	{schema.MetricUncommitted, Count},
	{schema.MetricResultOmitted, Count},
	{schema.MetricLeaseLost, Count},
	{schema.MetricOutOfTime, Count},
	{schema.MetricStoreUnavailable, Count},
	{schema.MetricFailedOpen, Count},
	{schema.MetricUnreadable, Count},
	{schema.MetricOutcomeQueued, Count},
	{schema.MetricOutcomeLanded, Count},
	{schema.MetricOutcomeDropped, Count},
	{schema.MetricShadowExecuted, Count},
	{schema.MetricShadowDuplicate, Count},
	{schema.MetricShadowKeyReused, Count},
	{schema.MetricClaimTime, Time},
	{schema.MetricHandlerTime, Time},
	{schema.MetricFinishTime, Time},
	{schema.MetricWriteUnits, Units},
	{schema.MetricReadUnits, Units},
	{schema.MetricSweepParked, Count},
	{schema.MetricSweepPostponed, Count},
	{schema.MetricSweepFailed, Count},
	{schema.MetricAbandoned, Count},
	{schema.MetricProbed, Count},
	{schema.MetricResolved, Count},
	{schema.MetricGivenUp, Count},
	{schema.MetricSwept, Count},
	{schema.MetricSweepLeft, Count},
	{schema.MetricOpen, Level},
	{schema.MetricOldestOpen, Age},
	{schema.MetricOutboxOldest, Age},
	{schema.MetricOutboxRelayed, Count},
	{schema.MetricOutboxFailed, Count},
	{schema.MetricOutboxDead, Count},
	{schema.MetricOutboxDeferred, Count},
	{schema.MetricOutboxUnreadable, Count},
	{schema.MetricOutboxLeft, Count},
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

// IsDuplicate reports whether a notice is about a call whose key is in use already.
func IsDuplicate(k notice.Kind) bool {
	switch k {
	case notice.Replayed, notice.InFlight, notice.Accepted, notice.Unknown, notice.Reused, notice.ShadowDuplicate, notice.ShadowReused:
		return true
	}
	return false
}
