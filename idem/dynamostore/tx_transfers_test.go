package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
)

// Transfers asked for several times at once, on a network that loses requests and
// replies, delivers late, conflicts and throttles, under a clock that jumps past
// leases: each takes effect once, all its callers get one answer, and no money
// appears or goes.
func TestTransfersUnderFaults(t *testing.T) {
	t.Parallel()
	const accounts, transfers, callers, start = 4, 12, 3, 1000
	for name, op := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openBank(t)
			for n := range accounts {
				b.set(t, n, start)
			}
			var mu sync.Mutex
			rng := rand.New(rand.NewPCG(7, 7))
			roll := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return rng.IntN(n)
			}
			var ahead, conflicts, lost atomic.Int64
			// Leases end while their holders are at work, but only so often: if all who wait
			// ended them, nobody would come to an end where the table is slow.
			var atWork, cut atomic.Int64
			const cuts = 20
			var delayed sync.WaitGroup
			engine := func() *idem.Engine {
				e, err := idem.New(b.Store, &idem.Options{
					Now:         func() time.Time { return base.Add(time.Duration(ahead.Load())) },
					ClaimBudget: 2 * time.Second, FinishBudget: 2 * time.Second,
				})
				require.NoError(t, err)
				return e
			}
			b.wire.set(func(_ int, call string, req *http.Request) (*http.Response, error) {
				if call == "TransactWriteItems" {
					// Some get no answer to any of their tries.
					switch _, token, _ := strings.Cut(bodyOf(t, req), `"ClientRequestToken":"`); token[0] {
					case 'A', 'B':
						lost.Add(1)
						return b.wire.loseRequest(req)
					case 'C', 'D':
						lost.Add(1)
						return b.wire.loseReply(req)
					}
				}
				switch n := roll(100); {
				case n < 4:
					// Delivered when nobody waits any more.
					lost.Add(1)
					late := req.Clone(context.WithoutCancel(req.Context()))
					late.Body = newBody(bodyOf(t, req))
					after := time.Duration(roll(1500)) * time.Millisecond
					delayed.Add(1)
					time.AfterFunc(after, func() {
						defer delayed.Done()
						_, _ = b.wire.loseReply(late)
					})
					return b.wire.loseRequest(req)
				case n < 12:
					lost.Add(1)
					return b.wire.loseReply(req)
				case n < 20:
					lost.Add(1)
					return b.wire.loseRequest(req)
				case n < 30 && call == "TransactWriteItems":
					conflicts.Add(1)
					return reasons("TransactionConflict", none, none, none), nil
				case n < 25 && call != "TransactWriteItems":
					conflicts.Add(1)
					return answer(400, conflicting), nil
				case n < 32:
					return answer(400, throttled), nil
				}
				return nil, nil
			})
			answers := make([]map[string]bool, transfers)
			var wg sync.WaitGroup
			for n := range transfers {
				answers[n] = map[string]bool{}
				for c := range callers {
					wg.Go(func() {
						e := engine()
						var last error
						// A try on a loaded machine may end in no time: there are many, so that what
						// fails is an answer and not the machine.
						for try := 0; ; try++ {
							if try == 5000 {
								t.Errorf("transfer %d, caller %d: no answer: %v", n, c, last)
								return
							}
							bodies := int64(0)
							out, err := idem.Do(t.Context(), e, op.Key("t", strconv.Itoa(n)), n, Transact(func(_ context.Context, tx *Tx, n int) (string, error) {
								bodies++
								atWork.Add(1)
								b.move(tx, n%accounts, (n+1)%accounts, 1+n)
								tx.Put(types.Put{TableName: &b.table, Item: item{
									schema.PK: str("entry-" + strconv.Itoa(n)), schema.SK: str("#"),
								}, ConditionExpression: ptr("attribute_not_exists(pk)")}, OnConditionFailed(errors.New("there is such an entry")))
								return fmt.Sprintf("transfer %d by caller %d, try %d", n, c, try), nil
							}))
							atWork.Add(-bodies)
							last = err
							switch {
							case err == nil:
								mu.Lock()
								answers[n][out] = true
								mu.Unlock()
								_ = e.Flush(context.Background())
								return
							case errors.Is(err, idem.ErrInFlight) && try%3 == 2:
								if atWork.Load() == 0 || cut.Add(1) <= cuts {
									ahead.Add(int64(40 * time.Second))
								}
							case errors.Is(err, ErrCondition):
								// The entry is there: a commit landed that this caller was not
								// told of. Only the record may say so.
								t.Errorf("transfer %d, caller %d: took effect twice but for its entry: %v", n, c, err)
								return
							}
							<-time.After(time.Duration(1+roll(20)) * time.Millisecond)
						}
					})
				}
			}
			wg.Wait()
			delayed.Wait()
			b.wire.set(nil)
			total := 0
			for n := range accounts {
				v, err := strconv.Atoi(b.balance(t, n))
				require.NoError(t, err)
				want := start
				for i := range transfers {
					if i%accounts == n {
						want -= 1 + i
					}
					if (i+1)%accounts == n {
						want += 1 + i
					}
				}
				require.Equal(t, want, v, "account %d", n)
				total += v
			}
			require.Equal(t, accounts*start, total)
			for n, got := range answers {
				require.Len(t, got, 1, "transfer %d: %v", n, got)
			}
			require.Positive(t, conflicts.Load())
			require.Positive(t, lost.Load())
		})
	}
}
