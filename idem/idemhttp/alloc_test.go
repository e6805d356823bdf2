//go:build !race

package idemhttp

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
)

// The engine makes few allocations, and the contract few more than the engine, which is given
// key, fingerprint and response.
func TestContractAllocations(t *testing.T) {
	engine, r, res := newEngine(t, memory()), payment(), created()
	c := contractFor(t, engine, Routes{"POST /payments": transfer}, Claim("tenant"))
	next := func(context.Context) (*Response, error) { return res, nil }
	fp, n := fingerprint.Bytes(r.Body), 0
	key := func(replay bool) string {
		if !replay {
			n++
		}
		return fmt.Sprintf("%036d", n)
	}
	for _, replay := range []bool{false, true} {
		alone := testing.AllocsPerRun(1000, func() {
			_, _ = engine.Execute(context.Background(), idem.Call{
				Key: charge.Key("blue", key(replay)), Fingerprint: fp,
				Run: func(context.Context) idem.Answer { return idem.Answer{Body: res.Body} },
			})
		})
		served := testing.AllocsPerRun(1000, func() {
			r.Header["idempotency-key"][0] = key(replay)
			_, _ = c.Serve(context.Background(), r, next)
		})
		t.Logf("replay %v: %v allocations, %v more with the contract", replay, alone, served-alone)
		require.LessOrEqual(t, alone, 30.0)
		require.LessOrEqual(t, served-alone, 32.0)
	}
}
