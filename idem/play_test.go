package idem_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
)

// A play is what happens to a key before a test, or after it.
type play = func(*testing.T, *rig, idem.Key)

// all plays one after the other.
func all(plays ...play) play {
	return func(t *testing.T, r *rig, key idem.Key) {
		for _, p := range plays {
			p(t, r, key)
		}
	}
}

func nothing(*testing.T, *rig, idem.Key) {}

func finished(t *testing.T, r *rig, key idem.Key) { must(t, r, key, new(counter).run) }

func failed(t *testing.T, r *rig, key idem.Key) { errs(t, r, key, fails(idem.Permanent(errPlain))) }

func released(t *testing.T, r *rig, key idem.Key) { errs(t, r, key, fails(idem.NotExecuted(errPlain))) }

func uncertainly(t *testing.T, r *rig, key idem.Key) { errs(t, r, key, fails(errPlain)) }

// parked leaves the key unknown.
func parked(t *testing.T, r *rig, key idem.Key) {
	t.Helper()
	uncertainly(t, r, key)
	require.Equal(t, idem.Unknown, r.state(t, key))
	r.events.take()
	r.faults.Reset()
}

// correctly executes another input than the first.
func correctly(t *testing.T, r *rig, key idem.Key) {
	_, err := idem.Do(t.Context(), r.engine, key, 2, new(counter).run)
	require.NoError(t, err)
}

// killed leaves a claim whose process is dead.
func killed(t *testing.T, r *rig, key idem.Key) {
	h := r.elsewhere(t)
	h.faults.Always(idemtest.LoseRequest, idemtest.Finish)
	must(t, h.inLambda(), key, new(counter).run)
}

// lapsed leaves a claim whose process is dead and whose lease is over.
var lapsed = all(killed, after(time.Hour))

// killedWith leaves a claim, whose process is dead, with recorded steps.
func killedWith(t *testing.T, r *rig, key idem.Key, steps ...protocol.StepWrite) {
	t.Helper()
	killed(t, r, key)
	for _, s := range steps {
		rec := r.record(t, key)
		s.ID, s.Owner, s.Write = rec.ID, rec.Owner, rec.Owner[:11]+"."+s.Name
		require.NoError(t, r.mem.RecordStep(t.Context(), r.clock.Now(), s))
	}
	r.clock.Advance(time.Hour)
}

// leaving is killedWith as a play.
func leaving(steps ...protocol.StepWrite) play {
	return func(t *testing.T, r *rig, key idem.Key) { killedWith(t, r, key, steps...) }
}

var (
	charged  = protocol.StepWrite{Name: "charge", Result: []byte("done")}
	shipping = protocol.StepWrite{Name: "ship", Begin: true}
)

func accepted(t *testing.T, r *rig, key idem.Key) {
	finished(t, r, key)
	rec := r.record(t, key)
	deleted(t, r, key)
	require.NoError(t, r.mem.Acquire(t.Context(), r.clock.Now(), protocol.Claim{Record: idem.Record{ID: rec.ID,
		State: idem.Pending, Fingerprint: rec.Fingerprint, Owner: "o", Write: "w", Attempt: 1}}))
}

// ofTheFuture leaves a claim whose fingerprint has a newer version.
func ofTheFuture(t *testing.T, r *rig, key idem.Key) {
	require.NoError(t, r.mem.Acquire(t.Context(), r.clock.Now(), protocol.Claim{Record: idem.Record{ID: key.ID(),
		State: idem.InProgress, Owner: "o", Write: "w", Attempt: 1, Fingerprint: "2:of the future",
		LeaseUntil: r.clock.Now().Add(time.Hour)}}))
}

// leftExpired leaves an outcome that has expired.
var leftExpired = all(finished, after(2*idem.DefaultRetention))

// expiresSoon leaves a record that TTL may delete before a request lands that is under way.
func expiresSoon(t *testing.T, r *rig, key idem.Key) {
	_, err := idem.Do(t.Context(), r.engine, safeKey(key), 1, fails(idem.NotExecuted(errPlain)))
	require.Same(t, errPlain, err)
	r.clock.Advance(idem.DefaultRetention - time.Minute)
}

// safeKey is the key in the reserved mode, which leaves a record.
func safeKey(key idem.Key) idem.Key {
	op := key.Operation()
	op.Mode = idem.Reserved
	return op.Key(key.Tenant(), "k")
}

// after moves the engine's clock.
func after(d time.Duration) play {
	return func(_ *testing.T, r *rig, _ idem.Key) { r.clock.Advance(d) }
}

func deleted(_ *testing.T, r *rig, key idem.Key) { r.mem.Delete(key.ID()) }

// swept deletes what TTL may delete.
func swept(t *testing.T, r *rig, key idem.Key) {
	if rec := r.record(t, key); rec != nil && rec.Expired(r.clock.Now()) {
		r.mem.Delete(key.ID())
	}
}

// elsewhere plays in another process.
func elsewhere(p play) play {
	return func(t *testing.T, r *rig, key idem.Key) { p(t, r.elsewhere(t), key) }
}

func flushed(t *testing.T, r *rig, _ idem.Key) { require.NoError(t, r.engine.Flush(t.Context())) }

// faulty gives the next calls of the method one fault each.
func faulty(m idemtest.Method, faults ...idemtest.Fault) play {
	return func(_ *testing.T, r *rig, _ idem.Key) { r.faults.Next(m, faults...) }
}

// goneBeforeTheSecond deletes the record just before the second call of the method gets to it.
func goneBeforeTheSecond(m idemtest.Method) play {
	return func(_ *testing.T, r *rig, key idem.Key) {
		r.faults.Next(m, idemtest.Pass, func(ctx context.Context, c *idemtest.Call) error {
			r.mem.Delete(key.ID())
			return c.Do(ctx)
		})
	}
}

// always gives all calls of the methods the fault.
func always(fault idemtest.Fault, ms ...idemtest.Method) play {
	return func(_ *testing.T, r *rig, _ idem.Key) { r.faults.Always(fault, ms...) }
}

// returns is a handler with this result.
func returns[Out any](v Out) handler[Out] {
	return func(context.Context, int) (Out, error) { return v, nil }
}

// expect requires the error: one that matches it, one of the type that it points to, one that says so, several of
// these, or none.
func expect(t *testing.T, want any, err error) {
	t.Helper()
	switch want := want.(type) {
	case nil:
		require.NoError(t, err)
	case []any:
		for _, each := range want {
			expect(t, each, err)
		}
	case *idem.RecordedError:
		require.Equal(t, want, err)
	case error:
		require.ErrorIs(t, err, want)
	case string:
		require.ErrorContains(t, err, want)
	default:
		require.ErrorAs(t, err, want)
	}
}
