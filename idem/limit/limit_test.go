package limit_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/middleware"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/storetest"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/stretchr/testify/require"
)

var errPlain = errors.New("plain")

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

func done(context.Context, int) (string, error) { return "done", nil }

// A call over the limit gets the error, and nothing else happens.
func TestACallOverTheLimitHasNoEffect(t *testing.T) {
	r := newRig(t, 2)
	require.NoError(t, r.do(export, "a", nil))
	r.calls("Get", "Acquire", "Finish")
	require.NoError(t, r.do(export, "b", nil))
	r.faults.Reset()
	r.now = r.now.Add(20 * time.Minute)
	r.kinds = nil
	_, err := idem.Do(t.Context(), r.engine, export.Key("acme", "c"), 1, func(context.Context, int) (string, error) {
		t.Error("it runs")
		return "", nil
	})
	require.ErrorIs(t, err, idem.ErrLimitExceeded)
	require.NotErrorIs(t, err, idem.ErrStoreUnavailable)
	limited, ok := errors.AsType[*idem.LimitExceededError](err)
	require.True(t, ok)
	require.Equal(t, 40*time.Minute, limited.RetryAfter)
	r.calls("Get")
	require.Equal(t, []notice.Kind{notice.LimitExceeded}, r.kinds)
	require.Len(t, r.table.Records(), 2)

	r.now = noon.Add(time.Hour - time.Millisecond)
	err = r.do(export, "c", nil)
	require.ErrorAs(t, err, &limited)
	require.Equal(t, time.Second, limited.RetryAfter)
	r.now = noon.Add(time.Hour)
	require.NoError(t, r.do(export, "c", nil), "another window has begun")
}

// The limit is each tenant's and each operation's own.
func TestALimitIsATenantsAndAnOperationsOwn(t *testing.T) {
	r := newRig(t, 1)
	for range 2 {
		for _, k := range []idem.Key{export.Key("acme", "a"), export.Key("globex", "a"), export.Key(idem.SingleTenant, "a"),
			export.Key("a#b", "a")} {
			require.NoError(t, r.doKey(k, nil))
		}
	}
	require.Equal(t, []string{"acme#export#limit#3600#" + unix(noon), "globex#export#limit#3600#" + unix(noon),
		"#export#limit#3600#" + unix(noon), "a%23b#export#limit#3600#" + unix(noon)}, r.counts)
	r.faults.Reset()
	for i := range 3 {
		require.NoError(t, r.doKey(idem.Operation{Name: "mail"}.Key("acme", fmt.Sprint(i)), nil))
		r.calls("Acquire", "Finish")
	}
	require.Len(t, r.counts, 4)
}

// What is known of a key is answered while the limit is exceeded too, and what was released runs.
func TestWhatIsKnownIsAnsweredOverTheLimit(t *testing.T) {
	r := newRig(t, 5)
	strict := idem.Operation{Name: "export"}
	require.NoError(t, r.do(export, "done", nil))
	require.Error(t, r.do(export, "failed", idem.Permanent(errPlain)))
	require.ErrorIs(t, r.do(strict, "unknown", errPlain), errPlain)
	require.ErrorIs(t, r.do(export, "released", errPlain), errPlain)
	_, err := idem.Do(t.Context(), r.engine, export.Key("acme", "runs"), 1, func(context.Context, int) (string, error) {
		require.ErrorIs(t, r.do(export, "new", nil), idem.ErrLimitExceeded)
		other, err := idem.New(r.store, nil)
		require.NoError(t, err)
		_, err = idem.Do(t.Context(), other, export.Key("acme", "runs"), 1, done)
		require.ErrorIs(t, err, idem.ErrInFlight)
		require.NoError(t, r.do(export, "done", nil))
		require.ErrorContains(t, r.do(export, "failed", nil), "plain")
		require.ErrorIs(t, r.do(strict, "unknown", nil), idem.ErrOutcomeUnknown)
		_, err = idem.Do(t.Context(), r.engine, export.Key("acme", "done"), 2, done)
		require.ErrorIs(t, err, idem.ErrKeyReused)
		require.ErrorIs(t, r.do(export, "released", errPlain), errPlain)
		require.NoError(t, r.do(export, "released", nil))
		require.ErrorIs(t, r.do(export, "new", nil), idem.ErrLimitExceeded)
		return "", nil
	})
	require.NoError(t, err)
	require.Len(t, r.table.Records(), 5)
}

// A key whose outcome has expired counts again, also while the table still has it.
func TestAnExpiredKeyCountsAgain(t *testing.T) {
	r := newRig(t, 2)
	op := export
	op.Retention = time.Minute
	require.NoError(t, r.do(op, "a", nil))
	r.now = r.now.Add(2 * time.Minute)
	require.NoError(t, r.do(op, "a", nil))
	r.now = r.now.Add(2 * time.Minute)
	require.ErrorIs(t, r.do(op, "a", nil), idem.ErrLimitExceeded)
	require.Equal(t, 2, len(r.counts)-1)
}

// What fails before a claim is no claim in doubt: nothing is taken back.
func TestACountThatFailsLeavesNothingInDoubt(t *testing.T) {
	for name, ambiguous := range map[string]bool{"refused": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2)
			r.countFault = func(count func() (bool, error)) (bool, error) {
				if ambiguous {
					_, _ = count()
				}
				return false, &protocol.StoreError{Op: "CountKey", Ambiguous: ambiguous, Down: true, Err: errPlain}
			}
			require.ErrorIs(t, r.do(export, "a", nil), idem.ErrStoreUnavailable)
			r.calls("Get")
			require.Empty(t, r.table.Records())
			require.NoError(t, r.do(export, "a", nil))
			err := r.do(export, "b", nil)
			if ambiguous {
				require.ErrorIs(t, err, idem.ErrLimitExceeded, "it has counted twice")
			} else {
				require.NoError(t, err)
			}

			r = newRig(t, 2)
			r.countFault = func(func() (bool, error)) (bool, error) {
				return false, &protocol.StoreError{Op: "CountKey", Ambiguous: ambiguous, Down: true, Err: errPlain}
			}
			err = r.do(move, "a", nil)
			commit, ok := errors.AsType[*idem.CommitError](err)
			require.True(t, ok, "%v", err)
			require.False(t, commit.Ambiguous)
			r.calls("Get", "Get")
		})
	}
}

// A claim whose reply is lost is taken back, and its key does not count again.
func TestAClaimInDoubtCountsOnce(t *testing.T) {
	for _, fault := range []idemtest.Fault{idemtest.LoseReply, idemtest.LoseRequest} {
		r := newRig(t, 1)
		r.faults.Next(idemtest.Acquire, fault)
		require.ErrorIs(t, r.do(export, "a", nil), idem.ErrStoreUnavailable)
		r.calls("Get", "Acquire", "Withdraw")
		require.NoError(t, r.do(export, "a", nil))
		require.ErrorIs(t, r.do(export, "b", nil), idem.ErrLimitExceeded)
	}
}

// A refusal is an answer of a store that works.
func TestARefusalKeepsTheCircuitClosed(t *testing.T) {
	r := newRig(t, 1)
	require.NoError(t, r.do(export, "a", nil))
	for range 4 {
		for range 4 {
			r.faults.Next(idemtest.Get, idemtest.Refuse)
			require.ErrorIs(t, r.do(export, "b", nil), idem.ErrStoreUnavailable)
		}
		require.ErrorIs(t, r.do(export, "b", nil), idem.ErrLimitExceeded)
	}
	require.NotContains(t, r.kinds, notice.CircuitOpened)
}

// In atomic mode the limit refuses the commit: nothing has taken effect by then.
func TestAnAtomicCallOverTheLimitHasNoEffect(t *testing.T) {
	r := newRig(t, 1)
	require.NoError(t, r.do(move, "a", nil))
	r.calls("Get", "Get", "Finish")
	r.kinds = nil
	require.ErrorIs(t, r.do(move, "b", nil), idem.ErrLimitExceeded)
	r.calls("Get", "Get")
	require.Equal(t, []notice.Kind{notice.Executed, notice.LimitExceeded}, r.kinds)
	require.Len(t, r.table.Records(), 1)
	require.NoError(t, r.do(move, "a", nil))
	r.calls("Get", "Result")
}

// An attempt in atomic mode counts once, whatever becomes of its commit.
func TestACommitCountsOnce(t *testing.T) {
	long := func(context.Context, int) (string, error) { return fmt.Sprintf("%0200d", 1), nil }
	refuses := func(r *rig, ambiguous bool) error {
		r.faults.Next(idemtest.Finish, func(context.Context, *idemtest.Call) error {
			return &protocol.RefusedError{Err: idem.Permanent(errPlain), Ambiguous: ambiguous}
		})
		require.ErrorIs(r, r.do(move, "a", nil), errPlain)
		require.ErrorContains(r, r.do(move, "a", nil), "plain")
		return nil
	}
	for name, run := range map[string]func(r *rig) error{
		"the reply is lost": func(r *rig) error {
			r.faults.Next(idemtest.Finish, idemtest.LoseReply)
			return r.do(move, "a", nil)
		},
		"the commit conflicts": func(r *rig) error {
			r.faults.Next(idemtest.Finish, idemtest.BareConflict, idemtest.BareConflict)
			return r.do(move, "a", nil)
		},
		"the result is too large": func(r *rig) error {
			_, err := idem.Do(r.Context(), r.engine, move.Key("acme", "a"), 1, long)
			return err
		},
		"the unit is refused":                              func(r *rig) error { return refuses(r, false) },
		"the unit is refused, and an earlier try may land": func(r *rig) error { return refuses(r, true) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			require.NoError(t, run(r))
			require.Len(t, r.counts, 1)
			require.Len(t, r.table.Records(), 1)
			require.ErrorIs(t, r.do(move, "b", nil), idem.ErrLimitExceeded)
		})
	}
}

// claimOf is a first claim of the value's key.
func claimOf(value string) protocol.Claim {
	return protocol.Claim{Record: protocol.Record{ID: export.Key("acme", value).ID(), State: protocol.InProgress,
		Owner: "owner of " + value, Write: "write of " + value, Attempt: 1}}
}

// commitOf is a commit in atomic mode that makes the record of the value's key.
func commitOf(value string) protocol.Finish {
	c := claimOf(value)
	return protocol.Finish{ID: c.Record.ID, Owner: c.Record.Owner, Write: c.Record.Write,
		Ending: protocol.Ending{State: protocol.Completed}, Attempt: protocol.Atomic{Claim: c}}
}

// A commit that is sent again may have landed: no limit refuses it, in whatever process.
func TestACommitThatHasLandedIsNotRefused(t *testing.T) {
	for name, again := range map[string]func(r *rig) protocol.Store{
		"the same process": func(r *rig) protocol.Store { return r.store },
		"another one": func(r *rig) protocol.Store {
			other, err := limit.Over(base{r.faults, r}, map[string]limit.PerTenant{"export": {Keys: 1, Window: time.Hour}})
			require.NoError(r, err)
			return other
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			f := commitOf("a")
			r.faults.Next(idemtest.Finish, idemtest.LoseReply)
			require.Error(t, r.store.Finish(t.Context(), noon, f))
			r.full()
			require.NoError(t, again(r).Finish(t.Context(), noon, f))
			require.Len(t, r.counts, 1)

			r.faults.Next(idemtest.Finish, idemtest.LoseRequest)
			require.ErrorIs(t, again(r).Finish(t.Context(), noon, commitOf("b")), protocol.ErrLimitExceeded)
		})
	}
}

// A claim that is sent again has landed or not, as the store says.
func TestAClaimThatHasLandedIsNotRefused(t *testing.T) {
	r := newRig(t, 1)
	c := claimOf("a")
	r.faults.Next(idemtest.Acquire, idemtest.LoseReply)
	require.Error(t, r.store.Acquire(t.Context(), noon, c))
	require.NoError(t, r.store.Acquire(t.Context(), noon, c))
	require.Len(t, r.counts, 1)

	// One over an expired record too.
	c.Seen, c.Replace, c.Record.Write = c.Record.Write, true, "another write"
	require.ErrorIs(t, r.store.Acquire(t.Context(), noon, c), protocol.ErrLimitExceeded)
	r.now = noon.Add(time.Hour)
	require.NoError(t, r.store.Acquire(t.Context(), r.now, c))
	require.NoError(t, r.store.Acquire(t.Context(), r.now, c))
	c.Seen, c.Record.Write = claimOf("a").Record.Write, "a third write"
	conflict, ok := errors.AsType[*protocol.ConflictError](r.store.Acquire(t.Context(), r.now, c))
	require.True(t, ok)
	require.Equal(t, "another write", conflict.Existing.Write)
	r.table.Delete(c.Record.ID)
	conflict, ok = errors.AsType[*protocol.ConflictError](r.store.Acquire(t.Context(), r.now, c))
	require.True(t, ok)
	require.Nil(t, conflict.Existing)
	require.Len(t, r.counts, 3)
}

// An acceptance for later is refused with nothing written. What is accepted runs whatever the limit.
func TestAcceptedWork(t *testing.T) {
	r := newRig(t, 1)
	accept := func(value string) error {
		_, err := later.Accept[string](t.Context(), r.engine, export.Key("acme", value), value, nil)
		return err
	}
	require.NoError(t, accept("a"))
	r.kinds = nil
	require.ErrorIs(t, accept("b"), idem.ErrLimitExceeded)
	require.Equal(t, []notice.Kind{notice.LimitExceeded}, r.kinds)
	require.Len(t, r.table.Records(), 1)
	require.NoError(t, accept("a"), "it is known")
	work := func(fail error) error {
		run := func(context.Context, string) (string, error) { return "done", fail }
		_, err := later.Work(t.Context(), r.engine, export, export.Key("acme", "a").ID(), run)
		return err
	}
	require.ErrorIs(t, work(errPlain), errPlain)
	require.NoError(t, work(nil))
	require.Len(t, r.counts, 2)
}

// In shadow nothing is refused, and nothing counts.
func TestShadowKnowsNoLimit(t *testing.T) {
	r := newRig(t, 1)
	op := export
	op.Shadow = true
	for i := range 3 {
		require.NoError(t, r.do(op, fmt.Sprint(i), nil))
	}
	require.Empty(t, r.counts)
	require.NoError(t, r.do(export, "a", nil))
	require.NoError(t, r.do(op, "b", nil))
	require.NotContains(t, r.kinds, notice.ShadowRefused)
}

func TestMistakesInALimit(t *testing.T) {
	over := func(store protocol.Store, name string, keys int, window time.Duration) error {
		_, err := limit.Over(store, map[string]limit.PerTenant{name: {Keys: keys, Window: window}})
		return err
	}
	store := memstore.New()
	for says, err := range map[string]error{
		"a <nil>, cannot count keys":            over(nil, "export", 1, time.Minute),
		"a *idemtest.Faults, cannot count keys": over(idemtest.NewFaults(store), "export", 1, time.Minute),
		`"export": Keys is 0`:                   over(store, "export", 0, time.Minute),
		"Window is 0s":                          over(store, "export", 1, 0),
		"Window is 500ms":                       over(store, "export", 1, time.Second/2),
		"Window is 1.5s: use whole seconds":     over(store, "export", 1, 1500*time.Millisecond),
		"Window is 43800h0m1s":                  over(store, "export", 1, limit.MaxWindow+time.Second),
		"the operation has no name":             over(store, "", 1, time.Minute),
	} {
		var mistake *idem.ConfigError
		require.ErrorAs(t, err, &mistake)
		require.ErrorContains(t, err, says)
	}
	require.NoError(t, over(store, "export", 1, limit.MaxWindow))
}

// limitedQuestions is a limited store that answers questions as the one below does.
type limitedQuestions struct {
	protocol.Store
	protocol.AdminStore
}

func TestConformance(t *testing.T) {
	generous := map[string]limit.PerTenant{"charge": {Keys: 1_000_000, Window: limit.MaxWindow}}
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		below := memstore.New()
		s, err := limit.Over(below, generous)
		require.NoError(t, err)
		return storetest.Harness{
			Store: limitedQuestions{s, below}, Scanner: below,
			Delete: func(_ context.Context, id string) error { below.Delete(id); return nil },
		}
	})
}

// table makes a table in DynamoDB, and a store that counts what it uses of it.
func table(t *testing.T) (store *dynamostore.Store, written, read *float64) {
	t.Helper()
	name := "limit-" + rand.Text()
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: dynamotest.Client(t)}, name))
	written, read = new(float64), new(float64)
	var mu sync.Mutex
	ask := dynamostore.MeterCapacity(name, func(_ context.Context, _ string, w, r float64) {
		mu.Lock()
		defer mu.Unlock()
		*written, *read = *written+w, *read+r
	})
	client, err := dynamostore.NewClient(aws.Config{APIOptions: []func(*middleware.Stack) error{ask}},
		&dynamostore.ClientOptions{Endpoint: dynamotest.Endpoint(t)})
	require.NoError(t, err)
	store, err = dynamostore.New(client, name, &dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
	require.NoError(t, err)
	return store, written, read
}

// engine is a process over the table. Its clock stands still, so that the window does not end.
func engine(t *testing.T, below protocol.Store, keys int) *idem.Engine {
	t.Helper()
	s, err := limit.Over(below, map[string]limit.PerTenant{"export": {Keys: keys, Window: time.Minute}})
	require.NoError(t, err)
	e, err := idem.New(s, &idem.Options{ClaimBudget: time.Minute, FinishBudget: time.Minute,
		Now: func() time.Time { return noon }})
	require.NoError(t, err)
	return e
}

// 64 callers of eight processes begin new keys at once: as many as the limit says run.
func TestTheBoundIsExact(t *testing.T) {
	const callers, processes, bound = 64, 8, 10
	for name, open := range map[string]func(t *testing.T) protocol.Store{
		"memstore":    func(*testing.T) protocol.Store { return memstore.New() },
		"dynamostore": func(t *testing.T) protocol.Store { s, _, _ := table(t); return s },
	} {
		for mode, op := range map[string]idem.Operation{"reserved": export, "atomic": move} {
			t.Run(name+" "+mode, func(t *testing.T) {
				below := open(t)
				var engines []*idem.Engine
				for range processes {
					engines = append(engines, engine(t, below, bound))
				}
				var done, refused, down atomic.Int64
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						_, err := idem.Do(context.Background(), engines[i%processes], op.Key("acme", fmt.Sprint(i)), i,
							func(context.Context, int) (int, error) { return i, nil })
						switch {
						case err == nil:
							done.Add(1)
						case errors.Is(err, idem.ErrLimitExceeded):
							refused.Add(1)
						case errors.Is(err, idem.ErrStoreUnavailable): // on a busy machine: it may have counted
							down.Add(1)
						default:
							t.Error(err)
						}
					})
				}
				all.Wait()
				require.LessOrEqual(t, done.Load(), int64(bound))
				require.GreaterOrEqual(t, done.Load()+down.Load(), int64(bound))
				require.EqualValues(t, callers, done.Load()+refused.Load()+down.Load())
			})
		}
	}
}

// What the package's documentation says that a limit costs, as DynamoDB counts it.
func TestUnitsOfEachPath(t *testing.T) {
	store, written, read := table(t)
	e := engine(t, store, 2)
	play := func(op idem.Operation, value string, writes, reads float64) {
		t.Helper()
		*written, *read = 0, 0
		_, err := idem.Do(t.Context(), e, op.Key("acme", value), 1, done)
		if err != nil {
			require.ErrorIs(t, err, idem.ErrLimitExceeded)
		}
		require.Equal(t, []float64{writes, reads}, []float64{*written, *read}, "write and read units of %s", value)
	}
	free := idem.Operation{Name: "free", Repeat: idem.Repeatable}
	play(free, "a", 2, 0)
	play(free, "a", 1, 0)
	play(export, "a", 2+1, 1)
	play(export, "a", 0, 1)
	play(move, "b", 1+1, 2)
	play(export, "over", 1, 1)
}

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// noon begins a window of any length that divides a day in two.
var noon = time.Date(2030, 5, 6, 12, 0, 0, 0, time.UTC)

// rig is an engine over a limited store in memory, with a clock that stands still.
type rig struct {
	*testing.T
	table  *memstore.Store
	faults *idemtest.Faults
	counts []string // counters that were asked for
	// countFault, if not nil, is around the next count.
	countFault func(count func() (bool, error)) (bool, error)
	store      idem.Store
	engine     *idem.Engine
	now        time.Time
	kinds      []notice.Kind
}

// base is what is limited.
type base struct {
	*idemtest.Faults
	r *rig
}

func (b base) CountKey(ctx context.Context, counter string, bound int, expires time.Time) (bool, error) {
	r, fault := b.r, b.r.countFault
	r.counts, r.countFault = append(r.counts, counter), nil
	count := func() (bool, error) { return r.table.CountKey(ctx, counter, bound, expires) }
	if fault != nil {
		return fault(count)
	}
	return count()
}

// newRig limits operation export to so many keys an hour.
func newRig(t *testing.T, keys int) *rig {
	r := &rig{T: t, table: memstore.Options{MaxResult: 100}.New(), now: noon}
	r.faults = idemtest.NewFaults(r.table)
	var err error
	r.store, err = limit.Over(base{r.faults, r}, map[string]limit.PerTenant{"export": {Keys: keys, Window: time.Hour}})
	require.NoError(t, err)
	r.engine, err = idem.New(r.store, &idem.Options{Now: func() time.Time { return r.now },
		Observer: func(_ context.Context, n notice.Notice) { r.kinds = append(r.kinds, n.Kind) }})
	require.NoError(t, err)
	return r
}

var (
	export = idem.Operation{Name: "export", Repeat: idem.Repeatable}
	move   = idem.Operation{Name: "export", Repeat: idem.Repeatable, Mode: idem.Atomic}
)

func (r *rig) do(op idem.Operation, value string, fail error) error {
	return r.doKey(op.Key("acme", value), fail)
}

func (r *rig) doKey(k idem.Key, fail error) error {
	_, err := idem.Do(r.Context(), r.engine, k, 1, func(context.Context, int) (string, error) { return "done", fail })
	return err
}

// full uses up the window.
func (r *rig) full() {
	r.Helper()
	counter := "acme#export#limit#3600#" + unix(r.now.Truncate(time.Hour))
	for range 100 {
		counted, err := r.table.CountKey(r.Context(), counter, 1000, time.Time{})
		require.NoError(r, err)
		require.True(r, counted)
	}
}

// calls requires that the store was asked so since the last time.
func (r *rig) calls(want ...idemtest.Method) {
	r.Helper()
	require.Equal(r, want, r.faults.Calls())
	r.faults.Reset()
}

// traited is a store with such traits.
type traited struct {
	*memstore.Store
	traits protocol.Traits
}

func (s traited) Traits() protocol.Traits { return s.traits }

// What the engine asks a store it asks the one that is limited.
func TestTraitsAreThoseOfTheStoreBelow(t *testing.T) {
	want := protocol.Traits{StepExtra: 7, NoUnits: errors.New("no units")}
	s, err := limit.Over(traited{memstore.New(), want}, nil)
	require.NoError(t, err)
	require.Equal(t, want, s.Traits())
}
