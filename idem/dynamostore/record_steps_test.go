package dynamostore

import (
	"context"
	"crypto/sha256"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

// Large results of steps lie beside the record for as long as it is open, however
// long that takes, and go with its outcome.
func TestLargeStepResults(t *testing.T) {
	t.Parallel()
	f := open(t, nil)
	ctx := t.Context()
	for name, size := range map[string]int{"just inline": 1 << 10, "just not": 1<<10 + 1, "100 KB": 100 << 10,
		"600 KB": 600 << 10} {
		t.Run(name, func(t *testing.T) {
			id, result := t.Name(), noise(size)
			f.claimed(t, id, "o1")
			write := protocol.StepWrite{ID: id, Owner: "o1", Write: "o1.1", Name: "charge", Result: result, First: true}
			require.NoError(t, f.RecordStep(ctx, base, write))
			rec := f.get(t, id)
			got, err := f.StepResult(ctx, rec, "charge")
			require.NoError(t, err)
			require.Equal(t, result, got)
			body := rec.Steps["charge"].Body
			require.Equal(t, size > 1<<10, body.Parts > 0)
			require.Less(t, itemSize(f.raw(t, id)), 3<<10)
			part := func(n int) item { return f.raw(t, partKeyPrefix(id, "o1.1", body.Digest)+strconv.Itoa(n)) }
			for n := range body.Parts {
				require.NotContains(t, part(n), schema.ExpiresAt)
			}
			end := completion(id, "o1", []byte("1"))
			end.LargeSteps = true
			require.NoError(t, f.Finish(ctx, base, end))
			for n := range body.Parts {
				require.Equal(t, strconv.FormatInt(end.Ending.ExpiresAt.Add(24*time.Hour).Unix(), 10),
					part(n)[schema.ExpiresAt].(*types.AttributeValueMemberN).Value)
			}
		})
	}
}

// Parts that are gone are never taken for a step that was not recorded.
func TestMissingStepResultFailsClosed(t *testing.T) {
	f := open(t, nil)
	ctx := t.Context()
	id := "k"
	f.claimed(t, id, "o1")
	require.NoError(t, f.RecordStep(ctx, base,
		protocol.StepWrite{ID: id, Owner: "o1", Write: "o1.1", Name: "charge", Result: noise(2 << 10)}))
	rec := f.get(t, id)
	f.remove(t, partKeyPrefix(id, "o1.1", rec.Steps["charge"].Body.Digest)+"0")
	_, err := f.StepResult(ctx, rec, "charge")
	require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
	_, err = f.StepResult(ctx, rec, "ship")
	require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
}

// stepOverhead is what [protocol.StepRoom] counts for a step beside its name, result and
// error.
const stepOverhead = 192

func TestStepsTakeNoMoreThanTheyCount(t *testing.T) {
	digest := sha256.Sum256(nil)
	write := strings.Repeat("W", 26) + ".2147483647"
	large := protocol.Body{Parts: maxParts, Size: resultLimit, Stored: resultLimit, Digest: digest[:],
		Encoding: encodingZlib}
	for name, s := range map[string]protocol.RecordedStep{
		"begun":        {Begun: true, BegunAt: time.UnixMilli(math.MaxInt64 / 2)},
		"not executed": {NotExecuted: true},
		"failed":       {Failure: &protocol.Failure{Type: "t", Code: "c"}},
		"unavailable":  {Failure: &protocol.Failure{Type: "t", Code: "c"}, Omitted: true, Compensates: true},
		"in parts":     {Body: large, Compensates: true},
		"compressed":   {Body: protocol.Body{Encoding: encodingZlib, Size: resultLimit}, Compensates: true},
	} {
		s.Write = write
		entry := item{"": encodeSteps(map[string]protocol.RecordedStep{"": s})}
		require.LessOrEqual(t, itemSize(entry), stepOverhead, name)
		if s.Body.Size > 0 {
			s.Body.Encoding = encodingZlibSealed
			entry = item{"": encodeSteps(map[string]protocol.RecordedStep{"": s})}
			require.LessOrEqual(t, itemSize(entry), stepOverhead+sealedFields, name)
		}
	}
}

// Results leave the record as it grows: many steps of nearly 1 KB fit, and nothing of
// them stays.
func TestManySteps(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	k := transfer.Key("t", "k")
	const steps = 200
	ran, size := 0, 0
	_, err := idem.Do(t.Context(), b.engine, k, 1, func(ctx context.Context, _ int) (int, error) {
		for n := range steps {
			_, err := idem.Step(ctx, "ship-"+strconv.Itoa(n),
				func(context.Context) ([]byte, error) { ran++; return noise(700), nil }, nil)
			if err != nil {
				return 0, err
			}
		}
		size = itemSize(b.raw(t, k.ID()))
		return steps, nil
	})
	require.NoError(t, err)
	require.Equal(t, steps, ran)
	require.Less(t, size, 110<<10)
	all, kept := b.parts(t)
	require.Greater(t, all, steps/2)
	require.Zero(t, kept)
}

// Parts of steps expire however their operation ends.
func TestPartsOfStepsExpire(t *testing.T) {
	t.Parallel()
	report := func(ctx context.Context) error {
		_, err := idem.Step(ctx, "report", func(context.Context) ([]byte, error) { return noise(600 << 10), nil }, nil)
		return err
	}
	k := transfer.Key("t", "k")
	for name, end := range map[string]func(t *testing.T, b *bank){
		"completed": func(t *testing.T, b *bank) {
			_, err := idem.Do(t.Context(), b.engine, k, 1,
				func(ctx context.Context, _ int) (int, error) { return 1, report(ctx) })
			require.NoError(t, err)
		},
		"completed with a transaction, steps not read": func(t *testing.T, b *bank) {
			_, err := idem.Do(t.Context(), b.engine, k, 1, Transact(func(ctx context.Context, tx *Tx, _ int) (int, error) {
				b.move(tx, 0, 1, 30)
				return 1, report(ctx)
			}))
			require.NoError(t, err)
			require.Equal(t, "70", b.balance(t, 0))
		},
		"resolved by a person": func(t *testing.T, b *bank) {
			_, err := idem.Do(t.Context(), b.engine, k, 1, func(ctx context.Context, _ int) (int, error) {
				if err := report(ctx); err != nil {
					return 0, err
				}
				return idem.Step(ctx, "pay", func(context.Context) (int, error) { return 0, errPoor },
					&idem.StepConfig[int]{Semantics: idem.AtMostOnce})
			})
			require.Error(t, err)
			require.Equal(t, protocol.Unknown, b.get(t, k.ID()).State)
			r := must(reconcile.New(b.adminStore(t), &reconcile.Options{Now: func() time.Time { return b.now }}))
			require.NoError(t, reconcile.Resolve(t.Context(), r, k,
				1, reconcile.Change{Actor: "alice", Reason: "the provider says so"}))
		},
		"refused": func(t *testing.T, b *bank) {
			w := protocol.StepWrite{ID: k.ID(), Owner: "nobody", Write: "nobody.1", Name: "report", Result: noise(600 << 10)}
			isConflict(t, b.RecordStep(t.Context(), b.now, w))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := openBank(t, 100, 0)
			end(t, b)
			all, kept := b.parts(t)
			require.Positive(t, all)
			require.Zero(t, kept)
		})
	}
}

// The reply to a resolution that records what a step did is lost, and two attempts have had
// the record when the store asks again: the resolution has landed, and what it says of the
// step is kept as long as the record is.
func TestResolutionsReplyIsLostAndTwoClaimsFollow(t *testing.T) {
	f, ctx, id, result := open(t, nil), t.Context(), "k", noise(4<<10)
	f.claimed(t, id, "o1")
	f.begun(t, id, "o1.1", "charge")
	require.NoError(t, f.Finish(ctx, base,
		protocol.Finish{ID: id, Owner: "o1", Write: "o1.end", Ending: protocol.Ending{State: protocol.Unknown}}))
	w := resolution(id, "o1.end", "r", protocol.Ending{State: protocol.Released})
	w.Steps = []protocol.StepWrite{{Name: "charge", Result: result}}
	f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
		if op != "UpdateItem" {
			return nil, nil
		}
		resp, err := f.wire.loseReply(req)
		f.wire.set(nil)
		for _, owner := range []string{"o2", "o3"} {
			next, rec := claim(id, owner), f.get(t, id)
			next.Seen, next.Record.Steps, next.Record.ExpiresAt = rec.Write, rec.Steps, time.Time{}
			require.NoError(t, f.Acquire(ctx, base, next))
		}
		return resp, err
	})
	require.NoError(t, f.Settle(ctx, base, w))
	rec := f.get(t, id)
	require.Equal(t, "o3", rec.Owner)
	got, err := f.StepResult(ctx, rec, "charge")
	require.NoError(t, err)
	require.Equal(t, result, got)
	body := rec.Steps["charge"].Body
	require.Positive(t, body.Parts)
	for n := range body.Parts {
		require.NotContains(t, f.raw(t, partKeyPrefix(id, w.Write, body.Digest)+strconv.Itoa(n)), schema.ExpiresAt)
	}
}

// write is one write of each kind, with what stands before it.
type write struct {
	name  string
	setup func(t *testing.T, f *fixture, id string)
	send  func(ctx context.Context, s *Store, id string) error
	// state of the record afterwards.
	state protocol.State
}

func eachWrite() []write {
	claimed := func(t *testing.T, f *fixture, id string) {
		f.claimed(t, id, "o1")
	}
	parked := func(t *testing.T, f *fixture, id string) {
		claimed(t, f, id)
		require.NoError(t, f.Finish(context.Background(), base, protocol.Finish{ID: id, Owner: "o1", Write: "parked",
			Ending: protocol.Ending{State: protocol.Unknown}}))
	}
	nothing := func(*testing.T, *fixture, string) {}
	type send = func(ctx context.Context, s *Store, id string) error
	acquire := func(seen string, replace bool) send {
		return func(ctx context.Context, s *Store, id string) error {
			c := claim(id, "o2")
			c.Seen, c.Replace, c.Record.Write = seen, replace, "w"
			return s.Acquire(ctx, base, c)
		}
	}
	end := func(f protocol.Finish) send {
		return func(ctx context.Context, s *Store, id string) error {
			f.ID, f.Owner, f.Write = id, "o1", "w"
			return s.Finish(ctx, base, f)
		}
	}
	finish := func(e protocol.Ending) send { return end(protocol.Finish{Ending: e}) }
	day := base.Add(24 * time.Hour)
	completed := protocol.Ending{State: protocol.Completed, Result: []byte("{}"), ExpiresAt: day}
	atomic := func(owner, seen string) send {
		return func(ctx context.Context, s *Store, id string) error {
			c := claim(id, owner)
			c.Seen = seen
			f := protocol.Finish{ID: id, Owner: owner, Write: "w", Attempt: protocol.Atomic{Claim: c}, Ending: completed}
			return s.Finish(ctx, base, f)
		}
	}
	withdraw := func(ctx context.Context, s *Store, id string) error {
		return s.Withdraw(ctx, base, protocol.Withdrawal{Claim: claim(id, "o1"), Owner: "n", Write: "w", ExpiresAt: day})
	}
	return []write{
		{"claim", nothing, acquire("", false), protocol.InProgress},
		{"takeover", claimed, acquire("o1.0", false), protocol.InProgress},
		{"replacement", claimed, acquire("o1.0", true), protocol.InProgress},
		{"withdrawal", claimed, withdraw, protocol.Released},
		{"withdrawal of nothing", nothing, withdraw, protocol.Released},
		{"extension", claimed, func(ctx context.Context, s *Store, id string) error {
			return s.Extend(ctx, base, protocol.Extension{ID: id, Owner: "o1", Write: "w",
				LeaseUntil: base.Add(time.Minute), ExpiresAt: day})
		}, protocol.InProgress},
		{"step", claimed, func(ctx context.Context, s *Store, id string) error {
			return s.RecordStep(ctx, base, protocol.StepWrite{ID: id, Owner: "o1", Write: "w", Name: "charge", Begin: true})
		}, protocol.InProgress},
		{"completion", claimed, finish(completed), protocol.Completed},
		{"outcome in atomic mode", nothing, atomic("o1", ""), protocol.Completed},
		{"outcome in atomic mode, over a seen record", claimed, atomic("o2", "o1.0"), protocol.Completed},
		{"fence", claimed,
			end(protocol.Finish{NewOwner: "nobody", Ending: protocol.Ending{State: protocol.Unknown, Uncertain: true}}),
			protocol.Unknown},
		{"commit", claimed, func(ctx context.Context, s *Store, id string) error {
			tx := new(Tx)
			tx.Put(types.Put{TableName: s.table, Item: key(id + "-business")}, nil)
			return end(protocol.Finish{Unit: tx, Ending: completed})(ctx, s, id)
		}, protocol.Completed},
		{"failure", claimed,
			finish(protocol.Ending{State: protocol.Failed, Failure: &protocol.Failure{Message: "no"}, ExpiresAt: day}),
			protocol.Failed},
		{"release", claimed, finish(protocol.Ending{State: protocol.Released, ExpiresAt: day}), protocol.Released},
		{"park", claimed, finish(protocol.Ending{State: protocol.Unknown}), protocol.Unknown},
		{"lapse", claimed, func(ctx context.Context, s *Store, id string) error {
			return s.Settle(ctx, base, protocol.Settlement{ID: id, Kind: protocol.EventLapse, Seen: "o1.0", Write: "w",
				Ending: protocol.Ending{State: protocol.Unknown}})
		}, protocol.Unknown},
		{"resolution", parked, func(ctx context.Context, s *Store, id string) error {
			w := resolution(id, "parked", "r", completed)
			w.Write = "w"
			return s.Settle(ctx, base, w)
		}, protocol.Completed},
	}
}

func TestLostReplies(t *testing.T) {
	t.Parallel()
	f := open(t, nil)
	for _, w := range eachWrite() {
		check := func(t *testing.T, id string) {
			rec := f.get(t, id)
			require.NotNil(t, rec)
			require.Equal(t, w.state, rec.State)
			require.Equal(t, "w", rec.Write)
		}
		// Twice the write is applied and its answer lost, so that the retry fails on the condition
		// that the write itself made false; or it is lost; or another transaction has the item.
		for name, fault := range map[string]func(*http.Request) (*http.Response, error){
			"reply lost": f.wire.loseReply, "request lost": f.wire.loseRequest,
			"conflict": func(*http.Request) (*http.Response, error) { return answer(400, conflicting), nil },
		} {
			t.Run(w.name+"/"+name, func(t *testing.T) {
				id := t.Name()
				w.setup(t, f, id)
				f.wire.set(func(n int, _ string, req *http.Request) (*http.Response, error) {
					if n < 2 {
						return fault(req)
					}
					return nil, nil
				})
				defer f.wire.set(nil)
				require.NoError(t, w.send(t.Context(), f.Store, id))
				check(t, id)
			})
		}
		// No answer ever: the caller is told that it may have been applied. The same
		// write, sent again when the network is back, says that it was.
		t.Run(w.name+"/all replies lost", func(t *testing.T) {
			id := t.Name()
			w.setup(t, f, id)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f.wire.set(func(n int, _ string, req *http.Request) (*http.Response, error) {
				defer endAfter(3, n, cancel)
				return f.wire.loseReply(req)
			})
			isStoreError(t, w.send(ctx, f.Store, id), true)
			f.wire.set(nil)
			if w.name != "step" {
				// A first step takes two forms, and the first one's refusal was lost too.
				check(t, id)
			}
			require.NoError(t, w.send(t.Context(), f.Store, id))
			check(t, id)
		})
		// The failed condition brings no item along: one consistent read decides.
		t.Run(w.name+"/no old item", func(t *testing.T) {
			id := t.Name()
			w.setup(t, f, id)
			require.NoError(t, w.send(t.Context(), f.Store, id))
			f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) { return stripItem(f.wire, op, req) })
			defer f.wire.set(nil)
			require.NoError(t, w.send(t.Context(), f.Store, id))
			if w.name != "park" && w.name != "extension" && w.name != "commit" { // known by its token
				require.Contains(t, f.wire.calls(), "GetItem")
			}
			f.wire.set(nil)
			check(t, id)
		})
	}
}

// stripItem takes the old item out of a failed condition's answer.
func stripItem(w *wire, op string, req *http.Request) (*http.Response, error) {
	if op == "GetItem" {
		return nil, nil
	}
	resp, err := w.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		return resp, err
	}
	_ = resp.Body.Close()
	return answer(http.StatusBadRequest, `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",`+
		`"message":"The conditional request failed"}`), nil
}

// Another attempt's record is a conflict, not a landed write, with and without the item.
func TestConflictWithoutOldItem(t *testing.T) {
	f := open(t, nil)
	ctx := t.Context()
	f.claimed(t, "k", "o1")
	f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) { return stripItem(f.wire, op, req) })
	rec := isConflict(t, f.Acquire(ctx, base, claim("k", "o2")))
	require.Equal(t, "o1", rec.Owner)
	require.Equal(t, []string{"PutItem", "GetItem"}, f.wire.calls())

	require.Nil(t, isConflict(t, f.Finish(ctx, base, completion("gone", "o1", nil))), "there is no record")
}

// A refusal that was read but whose record cannot be: the write is not in doubt.
func TestOldItemCannotBeRead(t *testing.T) {
	f := open(t, nil)
	f.claimed(t, "k", "o1")
	f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
		if op == "GetItem" {
			return answer(http.StatusBadRequest, noAccess), nil
		}
		return stripItem(f.wire, op, req)
	})
	failed := isStoreError(t, f.Acquire(t.Context(), base, claim("k", "o2")), false)
	require.ErrorContains(t, failed, "AccessDenied")
}

// An open question never expires, whatever expiry the write that opens it has.
func TestAnOpenQuestionHasNoExpiry(t *testing.T) {
	f := open(t, nil)
	day := base.Add(24 * time.Hour)
	ends := func(e protocol.Ending) func(id string) error {
		e.ExpiresAt = day
		return func(id string) error {
			return f.Finish(t.Context(), base, protocol.Finish{ID: id, Owner: "o1", Write: "w", Ending: e})
		}
	}
	settles := func(kind protocol.EventKind, to protocol.State) func(id string) error {
		w := protocol.Settlement{Kind: kind, Seen: "s", Write: "w", Ending: protocol.Ending{State: to, ExpiresAt: day}}
		return func(id string) error {
			w.ID = id
			return f.Settle(t.Context(), base, w)
		}
	}
	for name, open := range map[string]func(id string) error{
		"parked":                  ends(protocol.Ending{State: protocol.Unknown, Uncertain: true}),
		"released with a step":    ends(protocol.Ending{State: protocol.Released, Uncertain: true}),
		"parked by another call":  settles(protocol.EventLapse, protocol.Unknown),
		"resolved, with its step": settles(protocol.EventResolve, protocol.Released),
	} {
		f.claimed(t, name, "o1")
		step := protocol.StepWrite{ID: name, Owner: "o1", Write: "s", Name: "ship", Result: []byte("1"), First: true}
		require.NoError(t, f.RecordStep(t.Context(), base, step))
		require.NoError(t, open(name), name)
		it := f.raw(t, name)
		require.Equal(t, "w", text(it, schema.Write), name)
		require.NotContains(t, it, schema.ExpiresAt, name)
		require.Contains(t, it, schema.OpenDue, name)
	}
}
