package dynamostore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// acceptance for later of an input that lies beside the record.
func acceptance(id, owner string) protocol.Finish {
	c := claim(id, owner)
	c.Record.Attempt, c.Record.LeaseUntil, c.Record.ExpiresAt, c.Record.Ticket = 0, time.Time{}, time.Time{}, "ticket of "+owner
	input := noise(20 << 10)
	c.Record.Steps = map[string]protocol.RecordedStep{protocol.AcceptedStep: {
		Write: "input of " + owner, Body: protocol.Body{Data: input, Size: len(input), Stored: len(input)},
	}}
	return protocol.Finish{
		ID: id, Owner: owner, Write: owner + ".accept", Created: base, Attempt: protocol.Atomic{Claim: c},
		Ending: protocol.Ending{State: protocol.Pending, Due: base.Add(time.Hour)},
	}
}

// A try of an acceptance that has landed comes when workers have claimed the record and let go of
// it: the input stays. That of an acceptance that came too late does not.
func TestAnInputStaysAsLongAsItsRecordWaits(t *testing.T) {
	f := open(t, &patient)
	const id = "t#op#k"
	landed := acceptance(id, "first")
	require.NoError(t, f.Finish(t.Context(), base, landed))
	for _, owner := range []string{"o1", "o2"} {
		c := claim(id, owner)
		c.Seen, c.Record.ExpiresAt, c.Record.Due = f.get(t, id).Write, time.Time{}, base.Add(time.Minute)
		require.NoError(t, f.Acquire(t.Context(), base, c))
		require.NoError(t, f.Finish(t.Context(), base, protocol.Finish{
			ID: id, Owner: owner, Write: owner + ".end", Ending: protocol.Ending{State: protocol.Released}, Watched: true,
		}))
	}
	isConflict(t, f.Finish(t.Context(), base, landed))
	for _, expires := range f.partsExpire(t) {
		require.Zero(t, expires)
	}
	isConflict(t, f.Finish(t.Context(), base, acceptance(id, "second")))
	kept := 0
	for _, expires := range f.partsExpire(t) {
		if expires.IsZero() {
			kept++
		}
	}
	require.Equal(t, []int{1, 2}, []int{kept, len(f.partsExpire(t))})
	b, err := f.StepResult(t.Context(), f.get(t, id), protocol.AcceptedStep)
	require.NoError(t, err)
	require.Len(t, b, 20<<10)
}
