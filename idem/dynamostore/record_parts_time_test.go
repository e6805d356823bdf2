package dynamostore

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// isPart reports whether the input writes a part of a result, and which.
func isPart(in any) (string, bool) {
	p, ok := in.(*dynamodb.PutItemInput)
	if !ok {
		return "", false
	}
	pk := text(p.Item, "pk")
	return pk[strings.LastIndexByte(pk, '#')+1:], strings.Contains(pk, "#part#")
}

// Parts that the table does not take use up their share of the time and no more: the record was
// not touched, and there is time to write it without them.
func TestPartsLeaveTimeForTheRecord(t *testing.T) {
	for name, end := range map[string]protocol.AttemptKind{
		"of an outcome": nil, "of an outcome that stands": protocol.WithoutResult{Write: "o.fact"},
	} {
		for what, fails := range map[string]func(context.Context) error{
			"hang":      func(ctx context.Context) error { <-ctx.Done(); return canceled },
			"throttled": func(context.Context) error { return api("ThrottlingException") },
			"lost":      func(context.Context) error { return readReset },
			"denied":    func(context.Context) error { return api("AccessDeniedException") },
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := faked(func(ctx context.Context, in any) (item, error) {
						if _, ok := isPart(in); ok {
							return nil, fails(ctx)
						}
						t.Errorf("the record was touched by a %T", in)
						return nil, nil
					})
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					f := completion("k", "o", noise(600<<10))
					f.Attempt = end
					failed := isStoreError(t, s.Finish(ctx, base, f), false)
					require.True(t, failed.ResultNotStored)
					deadline, _ := ctx.Deadline()
					require.GreaterOrEqual(t, time.Until(deadline), 700*time.Millisecond)
				})
			})
		}
	}
}

// What of a result is stored already is not sent again, over as many calls as it takes.
func TestStoredPartsAreNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sent []string
		bad := map[string]bool{"1": true, "3": true}
		s := faked(func(_ context.Context, in any) (item, error) {
			mu.Lock()
			defer mu.Unlock()
			n, ok := isPart(in)
			switch {
			case ok && bad[n]:
				return nil, api("AccessDeniedException")
			case ok:
				sent = append(sent, n)
			default:
				sent = append(sent, "record")
			}
			return nil, nil
		})
		f := completion("k", "o", noise(4*partSize))
		f.Progress = new(protocol.Progress)
		for _, left := range []string{"3", ""} {
			isStoreError(t, s.Finish(t.Context(), base, f), false)
			bad = map[string]bool{left: left != ""}
		}
		require.NoError(t, s.Finish(t.Context(), base, f))
		require.Equal(t, "record", sent[len(sent)-1])
		slices.Sort(sent)
		require.Equal(t, []string{"0", "1", "2", "3", "record"}, sent)
	})
}

// A transaction's first try has a second for each MiB, whatever else there is time for.
func TestTransactionHasTimeForItsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first time.Duration
		s := faked(func(ctx context.Context, in any) (item, error) {
			if _, ok := in.(*dynamodb.TransactWriteItemsInput); ok && first == 0 {
				deadline, _ := ctx.Deadline()
				first = time.Until(deadline)
			}
			return nil, nil
		})
		tx := new(Tx)
		table, blob := "accounts", strings.Repeat("x", 300<<10)
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
			tx.Put(types.Put{TableName: &table, Item: item{"id": str(name), "blob": str(blob)}}, nil)
		}
		tx.Seal()
		require.Greater(t, tx.Size(), 10*len(blob))
		f := completion("k", "o", []byte("1"))
		f.Unit = tx
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		require.NoError(t, s.Finish(ctx, base, f))
		require.GreaterOrEqual(t, first, time.Duration(tx.Size())*time.Second>>20)
	})
}
