package idem_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

func TestOperationCheck(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, c := range map[string]struct {
		op   idem.Operation
		says string // empty if the operation is fine
	}{
		"the least":          {idem.Operation{Name: "charge"}, ""},
		"repeatable":         {idem.Operation{Name: "charge", Repeat: idem.Repeatable}, ""},
		"no name":            {idem.Operation{}, "give the operation a name"},
		"longest name":       {idem.Operation{Name: strings.Repeat("o", 128)}, ""},
		"long name":          {idem.Operation{Name: strings.Repeat("o", 129)}, "129 bytes: use at most 128"},
		"unknown repeat":     {idem.Operation{Name: "charge", Repeat: 2}, "use idem.NotRepeatable or idem.Repeatable"},
		"shortest retention": {idem.Operation{Name: "charge", Retention: time.Second}, ""},
		"short retention":    {idem.Operation{Name: "charge", Retention: time.Second - 1}, "at least one second"},
		"negative retention": {idem.Operation{Name: "charge", Retention: -time.Hour}, "at least one second"},
		"longest retention":  {idem.Operation{Name: "charge", Retention: 5 * year}, ""},
		"long retention":     {idem.Operation{Name: "charge", Retention: 5*year + 1}, "at most five years"},
		"negative min time":  {idem.Operation{Name: "charge", MinTime: -1}, "cannot be negative"},
		"min time unit":      {idem.Operation{Name: "charge", MinTime: 3}, "MinTime is 3ns: use at least a millisecond"},
		"min time":           {idem.Operation{Name: "charge", MinTime: time.Minute}, ""},
		"unknown policy":     {idem.Operation{Name: "charge", OnStoreFailure: 3}, "use idem.FailClosed or idem.FailOpen"},
		"fail open": {idem.Operation{
			Name: "charge", Repeat: idem.Repeatable, OnStoreFailure: idem.FailOpen,
		}, ""},
		"fail open, not repeatable": {idem.Operation{
			Name: "charge", OnStoreFailure: idem.FailOpen,
		}, "declare it idem.Repeatable, or use FailClosed"},
		"atomic": {idem.Operation{Name: "charge", Repeat: idem.Repeatable, Mode: idem.Atomic}, ""},
		"atomic, not repeatable": {idem.Operation{
			Name: "charge", Mode: idem.Atomic,
		}, "declare it idem.Repeatable"},
		"atomic, fail open": {idem.Operation{
			Name: "charge", Repeat: idem.Repeatable, Mode: idem.Atomic, OnStoreFailure: idem.FailOpen,
		}, "no claim to do without"},
		"unknown mode":  {idem.Operation{Name: "charge", Mode: 2}, "use idem.Reserved or idem.Atomic"},
		"unknown watch": {idem.Operation{Name: "charge", Watch: 3}, "Watch is 3: use idem.WatchNotRepeatable, idem.WatchAlways or"},
		"watched, repeatable": {idem.Operation{
			Name: "charge", Repeat: idem.Repeatable, Watch: idem.WatchAlways,
		}, ""},
		"unnoticed":       {idem.Operation{Name: "charge", Watch: idem.WatchNever}, ""},
		"atomic, watched": {idem.Operation{Name: "charge", Repeat: idem.Repeatable, Mode: idem.Atomic, Watch: idem.WatchAlways}, "leave it out"},
		"atomic, unnoticed": {idem.Operation{
			Name: "charge", Repeat: idem.Repeatable, Mode: idem.Atomic, Watch: idem.WatchNever,
		}, "Watch has no meaning with idem.Atomic"},
		"attempts":          {idem.Operation{Name: "charge", Repeat: idem.Repeatable, MaxAttempts: 1}, ""},
		"negative attempts": {idem.Operation{Name: "charge", Repeat: idem.Repeatable, MaxAttempts: -1}, "MaxAttempts is -1: it cannot be negative"},
		"attempts of what never runs again": {idem.Operation{
			Name: "charge", MaxAttempts: 3,
		}, "never runs again after an uncertain attempt"},
		"atomic, attempts": {idem.Operation{
			Name: "charge", Repeat: idem.Repeatable, Mode: idem.Atomic, MaxAttempts: 3,
		}, "counts no attempts"},
		"classify": {idem.Operation{
			Name: "charge", Classify: func(context.Context, any, error) idem.Class { return idem.ClassDefault },
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.op.Check()
			if c.says == "" {
				require.NoError(t, err)
				require.NoError(t, c.op.Key("t", "v").Err())
				return
			}
			var config *idem.ConfigError
			require.ErrorAs(t, err, &config)
			require.Contains(t, config.What, c.op.Name)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, err, c.op.Key("t", "v").Err())
		})
	}
}

// The zero values are the careful ones.
func TestZeroValuesAreCareful(t *testing.T) {
	var op idem.Operation
	require.Equal(t, idem.NotRepeatable, op.Repeat)
	require.Equal(t, idem.FailClosed, op.OnStoreFailure)
	require.Equal(t, idem.WatchNotRepeatable, op.Watch)
	require.Equal(t, "not_repeatable", op.Repeat.String())
	require.Equal(t, "repeatable", idem.Repeatable.String())
	require.Equal(t, "not_repeatable", idem.Repeat(7).String(), "what is not known is not repeated")
}
