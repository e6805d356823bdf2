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

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Large results of steps lie outside the record, which is billed by its size. TestConformance shows how long
// they are kept.
func TestLargeStepResults(t *testing.T) {
	f := open(t, nil)
	for size, parts := range map[int]int{1 << 10: 0, 1<<10 + 1: 1, 100 << 10: 1, 600 << 10: 3} {
		id, result := strconv.Itoa(size), noise(size)
		f.claimed(t, id, "o1")
		require.NoError(t, f.RecordStep(t.Context(), base,
			protocol.StepWrite{ID: id, Owner: "o1", Write: "o1.1", Name: "charge", Result: result, First: true}))
		rec := f.get(t, id)
		require.Equal(t, parts, rec.Steps["charge"].Body.Parts)
		require.Less(t, itemSize(f.raw(t, id)), 3<<10)
		require.Equal(t, result, must(f.StepResult(t.Context(), rec, "charge")))
		end := completion(id, "o1", []byte("1"))
		end.LargeSteps = true
		require.NoError(t, f.Finish(t.Context(), base, end))
		for pk, at := range f.partsExpire(t) {
			require.True(t, !strings.HasPrefix(pk, id+schema.PartPK) || at.Equal(end.Ending.ExpiresAt.Add(partsOutlive)), pk)
		}
	}
}

// Parts that are missing are never taken for a step that was not recorded.
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

// stepOverhead is what [protocol.StepRoom] counts for a step in addition to its name, result and error.
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

// Results leave the record as it grows: many steps of nearly 1 KB fit, and nothing of them stays.
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

// A refusal that was read but whose record cannot be: the write is not in doubt.
func TestOldItemCannotBeRead(t *testing.T) {
	f := open(t, nil)
	f.claimed(t, "k", "o1")
	f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
		if op == "GetItem" {
			return answer(http.StatusBadRequest, noAccess), nil
		}
		return f.wire.stripItem(req)
	})
	failed := isStoreError(t, f.Acquire(t.Context(), base, claim("k", "o2")), false)
	require.ErrorContains(t, failed, "AccessDenied")
	require.Equal(t, []string{"PutItem", "GetItem"}, f.wire.calls())
}

// A resolution replaces an earlier one's large result of a step, and its reply is lost.
func TestAReplacedResultOfAStepExpiresThoughTheReplyIsLost(t *testing.T) {
	eachKind(t, func(t *testing.T, f *fixture, q *AdminStore) {
		const id = "t#op#k"
		f.claimed(t, id, "o1")
		f.begun(t, id, "b1", "charge")
		resolve := func(seen, by string, change func(*protocol.Settlement)) {
			w := resolution(id, seen, by, protocol.Ending{State: protocol.Released})
			w.Audit = audit(id, by, protocol.ChangeResolved)
			change(&w)
			require.NoError(t, q.Settle(t.Context(), base.Add(time.Hour), w))
		}
		resolve("b1", "alice", func(w *protocol.Settlement) {
			w.Steps = []protocol.StepWrite{{Name: "charge", Result: noise(5000)}}
		})
		lost := f.wire.loseFirst(1, "UpdateItem", "TransactWriteItems")
		resolve("alice.0", "bob", func(w *protocol.Settlement) {
			w.ClearSteps, w.Again, w.LargeSteps = []string{"charge"}, true, true
		})
		f.wire.set(nil)
		require.NotEmpty(t, lost)
		_, kept := f.parts(t)
		require.Zero(t, kept)
	})
}
