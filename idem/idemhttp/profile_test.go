package idemhttp

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// A service may change the texts and statuses of refusals, and not what clients act on.
func TestRefusalsThatTheServiceChanges(t *testing.T) {
	change := func(ctx context.Context, r *Request, f *Refusal) {
		require.NotNil(t, ctx)
		require.Equal(t, "/payments", r.Route)
		switch f.Code {
		case CodeKeyMissing:
			f.Status, f.Type, f.Title, f.Detail = 428, "https://example.com/problems/no-key", "No key", "Send a key."
		case CodeKeyInvalid:
			f.Detail = "Bad key. " + f.Detail
		case CodeKeyReused:
			f.Status = 409
		}
		f.Code, f.Retryable, f.RecordedStatus = "spoofed", true, 299
	}
	for _, profile := range []Profile{IETF, Stripe} {
		c := newContract(t, memory(), func(o *Options) { o.OnRefusal, o.Profile = change, profile })
		n := 0
		res := serve(t, c, payment(func(r *Request) { delete(r.Header, "idempotency-key") }), counting(&n, created()))
		require.Equal(t, 428, res.Status)
		want := `{"type":"https://example.com/problems/no-key","title":"No key","status":428,
			"code":"idempotency_key_missing","retryable":false,"detail":"Send a key."}`
		if profile == Stripe {
			want = `{"error":{"type":"idempotency_error","code":"idempotency_key_missing","retryable":false,` +
				`"message":"Send a key."}}`
		}
		require.JSONEq(t, want, string(res.Body))

		res = serve(t, c, payment(func(r *Request) { r.Header["idempotency-key"] = []string{""} }), counting(&n, created()))
		p := problemIn(t, res)
		if profile == IETF {
			require.Equal(t, "Idempotency key invalid", p.Title)
		}
		p.Title = ""
		require.Equal(t, Problem{
			Type: "urn:idem-go:problem:idempotency_key_invalid", Status: 400, Code: CodeKeyInvalid,
			Detail: "Bad key. The idempotency key in the header Idempotency-Key cannot be used: it is empty.",
		}, p, "what is not changed stays")
		require.Zero(t, n)
		reused := after(t, c, created(), payment(func(r *Request) { r.Body = []byte(`{}`) }))
		require.Equal(t, 409, reused.Status)
		require.Equal(t, 201, problemIn(t, reused).RecordedStatus)
	}
}

// A status that does not refuse is ignored.
func TestStatusesThatRefuse(t *testing.T) {
	for code, statuses := range map[Code]map[int]bool{
		CodeKeyReused: {200: false, 303: false, 600: false, -1: false, 0: false, 400: true, 599: true},
		CodeAccepted:  {199: false, 300: false, 200: true, 299: true, 409: true},
	} {
		for status, counts := range statuses {
			c := newContract(t, memory(), func(o *Options) {
				o.OnRefusal = func(_ context.Context, _ *Request, f *Refusal) { f.Status = status }
			})
			want := c.rows[code].status
			if counts {
				want = status
			}
			res := c.refusal(t.Context(), payment(), &situation{code: code})
			require.Equal(t, want, res.Status)
			require.Equal(t, want, problemIn(t, res).Status)
		}
	}
}

func TestMembersOfProblems(t *testing.T) {
	var members map[string]any
	c := newContract(t, memory(), func(o *Options) {
		o.OnRefusal = func(_ context.Context, _ *Request, f *Refusal) { f.Members = members }
	})
	ask := func() string {
		n := 0
		res := serve(t, c, payment(func(r *Request) { delete(r.Header, "idempotency-key") }), counting(&n, created()))
		require.Equal(t, ProblemMediaType, res.Headers["Content-Type"])
		return string(res.Body)
	}
	bare := ask()
	members = map[string]any{"instance": "/errors/1", "trace_id": "t-1",
		"help": map[string]any{"url": "https://example.com/?a=1&b=2"}}
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(ask()), &got))
	require.Equal(t, "t-1", got["trace_id"])
	require.Equal(t, "/errors/1", got["instance"])
	require.Equal(t, members["help"], got["help"])
	require.Equal(t, "idempotency_key_missing", got["code"])
	require.Len(t, got, 9)

	// The contract's own members stand, and one that cannot be encoded costs no answer.
	members = map[string]any{}
	for _, name := range problemNames {
		members[name] = "spoofed"
	}
	require.Equal(t, bare, ask())
	require.Len(t, members, len(problemNames), "the function's map is left alone")
	members = map[string]any{"trace_id": "t-1", "bad": math.NaN()}
	require.Equal(t, bare, ask())
}

func stripeContract(t testing.TB, store idem.Store, change ...func(*Options)) *Contract {
	return newContract(t, store, append([]func(*Options){func(o *Options) { o.Profile = Stripe }}, change...)...)
}

// A refusal is what Stripe's libraries know as their own, with what this contract's clients go by.
func TestStripeRefusal(t *testing.T) {
	c := stripeContract(t, memory(), func(o *Options) {
		o.OnRefusal = func(_ context.Context, _ *Request, f *Refusal) {
			f.Members = map[string]any{"request_id": "req_1", "type": "spoofed", "doc_url": "https://example.com/keys"}
		}
	})
	res := after(t, c, created(), payment(func(r *Request) { r.Body = []byte(`{}`) }))
	require.Equal(t, 400, res.Status)
	require.Equal(t, map[string]string{
		"Content-Type": "application/json", "Cache-Control": "no-store", HeaderShouldRetry: "false",
	}, res.Headers)
	require.JSONEq(t,
		`{"error":{"type":"idempotency_error","code":"idempotency_key_reused","doc_url":"https://example.com/keys",
		"message":"Use a new key for a new request; the key was already used with a different one: `+
			`that was answered with 201.",
		"retryable":false,"recorded_status":201,"request_id":"req_1"}}`, string(res.Body))
}

// What the contract sets is what its problems have, and nothing else can hide there.
func TestNamesOfMembers(t *testing.T) {
	for _, c := range []struct {
		problem any
		names   []string
	}{{Problem{RecordedStatus: 1}, problemNames}, {StripeErrorDetail{RecordedStatus: 1}, stripeNames}} {
		body, err := json.Marshal(c.problem)
		require.NoError(t, err)
		var members map[string]any
		require.NoError(t, json.Unmarshal(body, &members))
		require.ElementsMatch(t, c.names, slices.Collect(maps.Keys(members)))
	}
}

// The refusal of a reused key says what the first request came to, to its own tenant alone.
func TestReusedKeyTellsItsOwnFirstAnswer(t *testing.T) {
	other := payment(func(r *Request) { r.Body = []byte(`{}`) })
	ask := func(c *Contract, first *Response) Problem { return problemIn(t, after(t, c, first, other)) }
	p := ask(newContract(t, memory()), &Response{Status: 400})
	require.Equal(t, 400, p.RecordedStatus)
	require.Contains(t, p.Detail, "was answered with 400")
	p = ask(contractOf(t, memory(), SingleTenant), created())
	require.Zero(t, p.RecordedStatus, "the first may be anybody's")
	require.NotContains(t, p.Detail, "201")
	require.Zero(t, ask(newContract(t, memory()), &Response{Status: 500}).RecordedStatus, "it has no answer yet")
}
