package idemhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/stretchr/testify/require"
)

// inFlight answers a request that comes while the first one runs.
func inFlight(t *testing.T, c *Contract) *Response {
	var inner *Response
	n := 0
	serve(t, c, payment(), func(context.Context) (*Response, error) {
		inner = serve(t, c, payment(), counting(&n, created()))
		return created(), nil
	})
	return inner
}

// after answers a second request, after a first one with that response.
func after(t *testing.T, c *Contract, given *Response, second *Request) *Response {
	n := 0
	serve(t, c, payment(), counting(&n, given))
	return serve(t, c, second, counting(&n, given))
}

// Every refusal, as the client gets it.
func TestRefusals(t *testing.T) {
	never := func(context.Context) (*Response, error) {
		t.Fatal("the handler ran")
		return nil, nil
	}
	ask := func(t *testing.T, c *Contract, change func(*Request)) *Response {
		return serve(t, c, payment(change), never)
	}
	for code, c := range map[Code]struct {
		status    int
		retryable bool
		get       func(t *testing.T) *Response
	}{
		CodeUndeclared: {500, false, func(t *testing.T) *Response {
			return ask(t, newContract(t, memory()), func(r *Request) { r.Route, r.Path = "/refunds", "/refunds" })
		}},
		CodeTenantMissing: {403, false, func(t *testing.T) *Response {
			return ask(t, newContract(t, memory()), func(r *Request) { r.Identity = Identity{} })
		}},
		CodeKeyMissing: {400, false, func(t *testing.T) *Response {
			return ask(t, newContract(t, memory()), func(r *Request) { delete(r.Header, "idempotency-key") })
		}},
		CodeKeyInvalid: {400, false, func(t *testing.T) *Response {
			return ask(t, newContract(t, memory()), func(r *Request) { r.Header["idempotency-key"] = []string{"short"} })
		}},
		CodeNotCanonical: {400, false, func(t *testing.T) *Response {
			return ask(t, newContract(t, memory()), func(r *Request) { r.Body = []byte(`{"a":1,"a":2}`) })
		}},
		CodeKeyReused: {422, false, func(t *testing.T) *Response {
			return after(t, newContract(t, memory()), created(), payment(func(r *Request) { r.Body = []byte(`{"amount":1}`) }))
		}},
		CodeInProgress: {409, true, func(t *testing.T) *Response { return inFlight(t, newContract(t, memory())) }},
		CodeOutcomeUnknown: {409, false, func(t *testing.T) *Response {
			return after(t, newContract(t, memory()), &Response{Status: 500, Body: []byte("secret")}, payment())
		}},
		CodeOutcomeUnavailable: {409, false, func(t *testing.T) *Response {
			c := newContract(t, memstore.Options{MaxResult: 100}.New())
			return after(t, c, &Response{Status: 201, Body: bytes.Repeat([]byte("secret"), 100)}, payment())
		}},
		CodeAccepted: {202, true, func(t *testing.T) *Response {
			return ask(t, newContract(t, occupied{memory(), idem.Record{State: idem.Pending}}), func(*Request) {})
		}},
		CodeRecordUnreadable: {503, false, func(t *testing.T) *Response {
			store := memory()
			c := newContract(t, store)
			fp, err := c.fingerprint(payment())
			require.NoError(t, err)
			_, err = c.engine.Execute(t.Context(), idem.Call{Key: charge.Key("blue", testKey), Fingerprint: fp, Run: func(context.Context) idem.Answer {
				return idem.Answer{Body: []byte(`{"v":2,"status":200}` + "\nsecret")}
			}})
			require.NoError(t, err)
			return ask(t, c, func(*Request) {})
		}},
		CodeStoreUnavailable: {503, true, func(t *testing.T) *Response {
			return ask(t, newContract(t, unreachable{memory()}), func(*Request) {})
		}},
		CodeOutOfTime: {503, true, func(t *testing.T) *Response {
			ctx := idem.WithKillTime(t.Context(), time.Now().Add(50*time.Millisecond))
			res, err := newContract(t, memory()).Serve(ctx, payment(), never)
			require.NoError(t, err)
			return res
		}},
	} {
		t.Run(string(code), func(t *testing.T) {
			res := c.get(t)
			require.Equal(t, c.status, res.Status)
			var p Problem
			require.NoError(t, json.Unmarshal(res.Body, &p))
			require.Equal(t, code, p.Code)
			require.Equal(t, c.status, p.Status)
			require.Equal(t, c.retryable, p.Retryable)
			require.Equal(t, "urn:idem-go:problem:"+string(code), p.Type)
			if after, ok := res.Headers["Retry-After"]; ok {
				seconds, err := strconv.Atoi(after)
				require.NoError(t, err)
				require.True(t, 1 <= seconds && seconds <= 5, after)
				res.Headers["Retry-After"] = "1 to 5"
			}
			_, says := res.Headers["Retry-After"]
			require.Equal(t, c.retryable, says, "Retry-After goes with retryable")
			text := wire(res)
			for _, secret := range []string{"secret", "blue", "crimson", testKey, "4999"} {
				require.NotContains(t, text, secret)
			}
			golden(t, "refusals/"+string(code), []byte(text))
		})
	}
	require.Len(t, ietf, 13, "a row without a case here")
}

// wire writes a response as HTTP does.
func wire(r *Response) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", r.Status)
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if v, ok := r.Headers[name]; ok {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, r.Body, "", "  ") != nil {
		pretty.Write(r.Body)
	}
	fmt.Fprintf(&b, "\n%s\n", pretty.String())
	return b.String()
}

// The first caller of a response that is too large to be kept has it all.
func TestTooLargeResponseIsLiveOnly(t *testing.T) {
	c := newContract(t, memstore.Options{MaxResult: 100}.New())
	n := 0
	given := &Response{Status: 201, Body: bytes.Repeat([]byte("x"), 1000)}
	require.Equal(t, given, serve(t, c, payment(), counting(&n, given)))
	again := serve(t, c, payment(), counting(&n, given))
	require.Contains(t, string(again.Body), `"recorded_status":201`)
	require.Equal(t, 1, n)
}

// Fail closed: a request that is refused changes nothing for the next one.
func TestRefusedRequestsLeaveNoRecord(t *testing.T) {
	store := memory()
	c, n := newContract(t, store), 0
	for _, change := range []func(*Request){
		func(r *Request) { r.Body = []byte(`{`) },
		func(r *Request) { r.Identity = Identity{} },
		func(r *Request) { r.Route = "/refunds"; r.Path = "" },
	} {
		serve(t, c, payment(change), counting(&n, created()))
		rec, err := store.Get(t.Context(), charge.Key("blue", testKey).ID())
		require.NoError(t, err)
		require.Nil(t, rec)
	}
	require.Zero(t, n)
}
