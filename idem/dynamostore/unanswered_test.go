package dynamostore

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// An acceptance whose reply is lost, and whose next try is refused, may have landed: its input stays.
func TestTheInputOfAnAcceptanceInDoubtStays(t *testing.T) {
	t.Parallel()
	f := open(t, &patient)
	const id = "t#op#k"
	puts := 0
	f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
		if op != "PutItem" {
			return nil, nil
		}
		switch puts++; puts {
		case 1:
			return nil, nil // the input's part
		case 2:
			return f.wire.loseReply(req)
		}
		return answer(http.StatusBadRequest, noAccess), nil
	})
	err := f.Finish(t.Context(), base, acceptance(id, "first"))
	isStoreError(t, err, true)
	f.wire.set(nil)
	require.Equal(t, protocol.Pending, f.get(t, id).State)
	all, kept := f.parts(t)
	require.Equal(t, all, kept)
}

// A withdrawal over an expired record whose result was encrypted leaves nothing of it: a store
// without the key can use the idempotency key again.
func TestAWithdrawalOverASealedRecordLeavesNothingOfIt(t *testing.T) {
	t.Parallel()
	f := open(t, sealing(newGCM(t, 1)))
	const id = "t#op#k"
	f.completed(t, id, []byte("secret"))
	require.Contains(t, f.raw(t, id), schema.Sealed)

	later := base.Add(48 * time.Hour)
	plain, c := f.on(&patient), claim(id, "o2")
	c.Seen, c.Replace = f.get(t, id).Write, true
	require.NoError(t, plain.Withdraw(t.Context(), later, protocol.Withdrawal{
		Claim: c, Owner: "w", Write: "w.0", ExpiresAt: later.Add(time.Hour),
	}))
	require.NotContains(t, f.raw(t, id), schema.Sealed)
	require.NotContains(t, f.raw(t, id), schema.Body)
}
