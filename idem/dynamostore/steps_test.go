package dynamostore

import (
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Large results of steps lie beside the record for as long as it is open, however
// long that takes, and go with its outcome.
func TestLargeStepResults(t *testing.T) {
	t.Parallel()
	f := open(t, nil)
	ctx := t.Context()
	for name, size := range map[string]int{"just inline": 1 << 10, "just not": 1<<10 + 1, "100 KB": 100 << 10, "600 KB": 600 << 10} {
		t.Run(name, func(t *testing.T) {
			id, result := t.Name(), noise(size)
			f.claimed(t, id, "o1")
			write := protocol.StepWrite{ID: id, Owner: "o1", Write: "o1.1", Name: "charge", Result: result, First: true}
			require.NoError(t, f.RecordStep(ctx, base, write))
			rec, err := f.Get(ctx, id)
			require.NoError(t, err)
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
				require.Equal(t, strconv.FormatInt(end.Ending.ExpiresAt.Add(24*time.Hour).Unix(), 10), part(n)[schema.ExpiresAt].(*types.AttributeValueMemberN).Value)
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
	require.NoError(t, f.RecordStep(ctx, base, protocol.StepWrite{ID: id, Owner: "o1", Write: "o1.1", Name: "charge", Result: noise(2 << 10)}))
	rec, err := f.Get(ctx, id)
	require.NoError(t, err)
	f.remove(t, partKeyPrefix(id, "o1.1", rec.Steps["charge"].Body.Digest)+"0")
	_, err = f.StepResult(ctx, rec, "charge")
	require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
	_, err = f.StepResult(ctx, rec, "ship")
	require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
}
