package limit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/secrets"
)

// A place that was left under a former secret is looked at when the key's mark has expired: what the
// look writes there must not hide the outcome under the current secret.
func TestALookUnderAFormerSecretHidesNoOutcome(t *testing.T) {
	secretA, secretB := []byte("a: 0123456789abcdef0123456789abcdef"), []byte("b: 0123456789abcdef0123456789abcdef")
	r := newRig(t, 1)
	op := r.of(idem.Repeatable)
	op.Retention = 30 * 24 * time.Hour
	under := func(first, second []byte) idem.Operation {
		o := op
		o.Secrets = secrets.New(first, second)
		return o
	}
	former, current := under(secretA, secretB), under(secretB, secretA)

	// A process dies between its place and its claim, or the claim is throttled.
	p := r.process()
	require.NoError(t, p.do(former, "first", nil))
	p.faults.Next(idemtest.Acquire, idemtest.Refuse)
	require.Error(t, p.do(former, "4711", nil))

	// The deployment comes, and the retry is executed under the current secret. So that it has
	// room, another process has a higher bound.
	r.clock.Advance(2 * time.Minute)
	ran := 0
	charge := func(context.Context) error { ran++; return nil }
	next := r.process()
	bigger := current
	bigger.Limit = limit.PerTenant{Open: 2}
	r.bound = 2
	require.NoError(t, next.do(bigger, "4711", charge))
	require.NoError(t, next.do(bigger, "4711", charge))
	require.Equal(t, 1, ran)

	// Nine days later its mark is gone, as TTL deletes it, and the limit is full for the first time.
	r.clock.Advance(9 * 24 * time.Hour)
	r.table.Delete(former.Key("acme", "4711").ID())
	later := r.process()
	require.NoError(t, later.do(current, "another", nil))

	require.NoError(t, later.do(current, "4711", charge))
	require.Equal(t, 1, ran, "it has an outcome for three more weeks")
}
