package idemtest_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

var op = idem.Operation{Name: "op", Repeat: protocol.Repeatable}

func request(h func(context.Context, int) (int, error)) func(context.Context, *idem.Engine) (int, error) {
	return func(ctx context.Context, e *idem.Engine) (int, error) { return idem.Do(ctx, e, op.Key("t", "k"), 1, h) }
}

func double(_ context.Context, n int) (int, error) { return 2 * n, nil }

func TestDeliverTellsRunFromReplay(t *testing.T) {
	seen := map[notice.Kind]int{}
	h := idemtest.New(t, &idem.Options{Observer: func(_ context.Context, n notice.Notice) { seen[n.Kind]++ }})
	h.CrashAfter(1, true)
	h.CrashAfter(0, false) // takes it back
	got := idemtest.Deliver(h, 3, request(double))
	require.Equal(t, []idemtest.Delivery[int]{
		{Value: 2, Ran: true}, {Value: 2, Replayed: true}, {Value: 2, Replayed: true},
	}, got)
	require.Equal(t, []idemtest.Method{"Acquire", "Finish", "Acquire", "Result", "Get", "Result"}, h.Faults.Calls())
	require.Equal(t, map[notice.Kind]int{notice.Claimed: 1, notice.Executed: 1, notice.Completed: 1, notice.Replayed: 2},
		seen, "the user's observer is kept")
}

func TestClockExpiresAnOutcome(t *testing.T) {
	h := idemtest.New(t, nil)
	idemtest.Deliver(h, 1, request(double))
	h.Clock.Advance(idem.DefaultRetention + idem.DefaultMargin + time.Second)
	require.True(t, idemtest.Deliver(h, 1, request(double))[0].Ran)
	require.Equal(t, 2, h.Record(op.Key("t", "k")).Attempt)
}

// From the crash on nothing of the process reaches the store or the log, whatever it does. What logs what its calls
// returned logs the crash.
func TestADeadProcessReachesNothing(t *testing.T) {
	after := func(n int, landed bool) func(*idemtest.Harness) {
		return func(h *idemtest.Harness) { h.CrashAfter(n, landed) }
	}
	for _, tc := range []struct {
		name  string
		die   func(h *idemtest.Harness)
		ran   bool
		state protocol.State
	}{
		{"at the claim", after(1, false), false, protocol.Absent},
		{"after the claim", after(1, true), false, protocol.InProgress},
		{"in the handler", func(*idemtest.Harness) {}, true, protocol.InProgress},
		{"at the end", after(2, false), true, protocol.InProgress},
		{"after the end", after(2, true), true, protocol.Completed},
	} {
		for _, repeat := range []idem.Repeat{idem.NotRepeatable, idem.Repeatable} {
			t.Run(tc.name+"/"+repeat.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log bytes.Buffer
					h := idemtest.New(t, &idem.Options{Observer: idem.LogTo(slog.New(slog.NewTextHandler(&log, nil)))})
					key := idem.Operation{Name: "op", Repeat: repeat}.Key("t", "k")
					call := func(ctx context.Context, e *idem.Engine) (n int, err error) {
						n, err = idem.Do(ctx, e, key, 1, func(ctx context.Context, n int) (int, error) {
							if tc.name == "in the handler" {
								h.Crash()
								<-ctx.Done()
								require.ErrorIs(t, context.Cause(ctx), idemtest.ErrCrashed)
							}
							return 2 * n, nil
						})
						require.ErrorIs(t, err, idemtest.ErrCrashed)
						return n, err
					}
					old := h.Engine
					tc.die(h)
					got := idemtest.Deliver(h, 2, call)
					require.Equal(t, []idemtest.Delivery[int]{
						{Err: idemtest.ErrCrashed, Ran: tc.ran}, {Err: idemtest.ErrCrashed},
					}, got)
					before := h.Record(key)
					require.Equal(t, tc.state == protocol.Absent, before == nil)
					require.True(t, before == nil || before.State == tc.state, "%v", before)
					h.Restart()
					h.Clock.Advance(time.Hour)
					time.Sleep(time.Hour) // whatever the dead process still has in mind
					_, _ = call(t.Context(), old)
					require.Equal(t, before, h.Record(key))
					require.Empty(t, log.String())
				})
			})
		}
	}
}

func TestRestartForgetsWhatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[notice.Kind]int{}
		h := idemtest.New(t, &idem.Options{Observer: func(_ context.Context, n notice.Notice) { seen[n.Kind]++ }})
		h.Faults.Always(idemtest.Refuse, idemtest.Finish)
		require.NoError(t, idemtest.Deliver(h, 1, request(double))[0].Err)
		h.Restart()
		h.Faults.Heal()
		time.Sleep(time.Minute)
		require.Equal(t, map[notice.Kind]int{notice.Claimed: 1, notice.Executed: 1, notice.OutcomeQueued: 1}, seen,
			"a dead process drops nothing")
		require.Equal(t, protocol.InProgress, h.Record(op.Key("t", "k")).State)
	})
}

// Neither a crash nor the test's end leaves a goroutine: this bubble would not end.
func TestNothingGoesOnAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := idemtest.New(t, nil)
		h.Faults.Always(idemtest.LoseRequest, idemtest.Finish)
		require.NoError(t, idemtest.Deliver(h, 1, request(double))[0].Err)
		h.Restart()
		h.Faults.Always(idemtest.LoseRequest)
		require.Error(t, idemtest.Deliver(h, 1, request(double))[0].Err)
	})
}

func TestMistakes(t *testing.T) {
	require.Panics(t, func() { idemtest.New(nil, &idem.Options{Now: time.Now}) })
	require.Panics(t, func() { idemtest.New(nil, &idem.Options{Lease: -1}) })
	h := idemtest.New(nil, nil)
	require.Panics(t, func() { h.CrashAfter(-1, true) })
	require.Panics(t, func() { h.Record(idem.Key{}) })
	require.Nil(t, h.Record(op.Key("t", "none")))
}

func TestFaults(t *testing.T) {
	claim := func(write string) protocol.Claim {
		return protocol.Claim{Record: protocol.Record{ID: "id", State: protocol.InProgress, Owner: write, Write: write}}
	}
	var held *idemtest.Call
	for _, tc := range []struct {
		name  string
		fault idemtest.Fault
		lands bool
		maybe bool
		is    error
	}{
		{"pass", idemtest.Pass, true, false, nil},
		{"lose reply", idemtest.LoseReply, true, true, protocol.ErrStoreUnavailable},
		{"lose request", idemtest.LoseRequest, false, true, protocol.ErrStoreUnavailable},
		{"refuse", idemtest.Refuse, false, false, protocol.ErrStoreUnavailable},
		{"black hole", idemtest.BlackHole, false, true, context.DeadlineExceeded},
		{"unreadable", idemtest.Unreadable, false, false, protocol.ErrRecordUnreadable},
		{"hold", idemtest.Hold(&held), false, true, protocol.ErrStoreUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				f := idemtest.NewFaults(mem)
				f.Next(idemtest.Acquire, tc.fault)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := f.Acquire(ctx, time.Now(), claim("w"))
				require.ErrorIs(t, err, tc.is)
				var sErr *protocol.StoreError
				require.Equal(t, tc.maybe, errors.As(err, &sErr) && sErr.Ambiguous)
				require.Equal(t, tc.lands, len(mem.Records()) == 1)
				// The fault was for one call.
				require.NoError(t, f.Acquire(t.Context(), time.Now(), claim("w")))
			})
		})
	}
	require.Equal(t, idemtest.Acquire, held.Method)
	require.Equal(t, "id", held.ID)
	require.NoError(t, held.Do(t.Context()), "a repeat of what has landed")
}

func TestFaultsOfReads(t *testing.T) {
	mem := memstore.New()
	f := idemtest.NewFaults(mem)
	c := protocol.Claim{Record: protocol.Record{ID: "id", State: protocol.InProgress, Owner: "o", Write: "w"}}
	require.NoError(t, f.Acquire(t.Context(), time.Now(), c))
	f.Always(idemtest.LoseReply)
	rec, err := f.Get(t.Context(), "id")
	require.Nil(t, rec)
	require.ErrorIs(t, err, protocol.ErrStoreUnavailable)
	body, err := f.Result(t.Context(), &c.Record)
	require.Nil(t, body)
	require.ErrorIs(t, err, protocol.ErrStoreUnavailable)
	f.Heal()
	rec, err = f.Get(t.Context(), "id")
	require.NoError(t, err)
	require.Equal(t, "w", rec.Write)
	f.Reset()
	require.Empty(t, f.Calls())

	f.Next(idemtest.Acquire, idemtest.BareConflict)
	var conflict *protocol.ConflictError
	require.ErrorAs(t, f.Acquire(t.Context(), time.Now(), c), &conflict)
	require.Nil(t, conflict.Existing)
}

var key = idem.Operation{Name: "charge", Repeat: protocol.Repeatable}.Key("acme", "payment-1")

func TestContextIsThatOfAHandler(t *testing.T) {
	ctx := idemtest.Context(t, key)
	h := idemtest.New(t, nil)
	under, err := idem.Do(t.Context(), h.Engine, key, "", func(ctx context.Context, _ string) (string, error) {
		return idem.Token(ctx), nil
	})
	require.NoError(t, err)
	require.Equal(t, under, idem.Token(ctx), "as under a wrapper")
	require.Equal(t, under, idem.Token(idemtest.Context(t, key)), "of every attempt")

	info, ok := idem.InfoOf(ctx)
	require.True(t, ok)
	require.Equal(t, "acme", info.Tenant)
	require.Equal(t, "charge", info.Operation)
	require.Equal(t, 1, info.Attempt)

	seat, err := idem.Step(ctx, "flight", func(ctx context.Context) (string, error) { return idem.Token(ctx), nil }, nil)
	require.NoError(t, err)
	require.NotEqual(t, under, seat, "a step has a token of its own")
	_, err = idem.Step(ctx, "flight", func(ctx context.Context) (string, error) { return "", nil }, nil)
	require.Error(t, err, "a name is used once in an attempt")

	tx := dynamostore.TxOf(ctx)
	tx.Publish("charged", outbox.Message{Destination: "charges", Type: "charged", Body: []byte("1")})
	tx.Put(types.Put{TableName: new("t"), Item: item("a")}, nil)
	require.Equal(t, "charged", dynamostore.TxOf(ctx).Messages()[0].Type)
	require.Equal(t, item("a"), dynamostore.TxOf(ctx).Actions()[0].Put.Item)
}

func item(pk string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: pk}}
}

// TestContextLivesAsLongAsTheTest: longer than a lease, and no longer.
func TestContextLivesAsLongAsTheTest(t *testing.T) {
	var ctx context.Context
	t.Run("inner", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx = idemtest.Context(t, key)
			time.Sleep(10 * idem.DefaultLease)
			require.NoError(t, ctx.Err())
			_, err := idem.Step(ctx, "late", func(context.Context) (string, error) { return "", nil }, nil)
			require.NoError(t, err)
		})
	})
	require.Error(t, ctx.Err())
}

// refusing stands for a test that expects to fail.
type refusing struct {
	testing.TB
}

func (r *refusing) Helper() {}

func (r *refusing) Cleanup(func()) {}

func (r *refusing) Fatalf(format string, args ...any) { panic(errors.New(format)) }

func TestContextOfABadKey(t *testing.T) {
	bad := idem.Operation{Name: "charge"}.Key("acme", "")
	require.Panics(t, func() { idemtest.Context(&refusing{TB: t}, bad) })
	require.Panics(t, func() { idemtest.Context(nil, bad) })
}
