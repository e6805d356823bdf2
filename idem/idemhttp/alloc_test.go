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
	fp, n, ran := fingerprint.Bytes(r.Body), 0, 0
	next := func(context.Context) (*Response, error) { ran++; return res, nil }
	key := func(replay bool) string {
		id := fmt.Sprintf("%036d", n)
		if !replay {
			n++
		}
		return id
	}
	const aloneKeys, servedKeys = 1 << 21, 1 << 20
	for _, replay := range []bool{false, true} {
		n = aloneKeys
		alone := testing.AllocsPerRun(1000, func() {
			out, err := engine.Execute(context.Background(), idem.Call{
				Key: transfer.Key("blue", key(replay)), Fingerprint: fp,
				Run: func(context.Context) idem.Answer { return idem.Answer{Body: res.Body} },
			})
			if err != nil || out.Replayed != replay {
				t.Fatal(err, out.Replayed)
			}
		})
		n, ran = servedKeys, 0
		served := testing.AllocsPerRun(1000, func() {
			r.Header["idempotency-key"][0] = key(replay)
			got, err := c.Serve(context.Background(), r, next)
			if err != nil || got.Status != 201 || (got.Headers[HeaderReplayed] != "") != replay {
				t.Fatal(err, got)
			}
		})
		require.Equal(t, replay, ran == 0)
		t.Logf("replay %v: %v allocations, %v more with the contract", replay, alone, served-alone)
		require.LessOrEqual(t, alone, 30.0)
		require.LessOrEqual(t, served-alone, 32.0)
	}
}
