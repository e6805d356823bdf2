package idemhttp

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// The profiles differ in what marks a replay; date and expiry are in both.
func TestMarksOfAReplay(t *testing.T) {
	for profile, marks := range map[Profile][2]string{
		IETF:   {"Idempotency-Replayed", "Idempotent-Replayed"},
		Stripe: {"Idempotent-Replayed", "Idempotency-Replayed"},
	} {
		c, n := newContract(t, memory(), func(o *Options) { o.Profile = profile }), 0
		given := created()
		given.MultiHeaders = map[string][]string{"IDEMPOTENT-REPLAYED": {"spoofed"}, "idempotency-Replayed": {"spoofed"}}
		given.Headers["idempotency-original-date"] = "spoofed"
		// Nor is a first answer one, whatever its handler passes on from elsewhere.
		require.Equal(t, created(), serve(t, c, payment(), counting(&n, given)))
		again := serve(t, c, payment(), counting(&n, given))
		require.Equal(t, map[string]string{
			"Content-Type": "application/json", marks[0]: "true",
			"Idempotency-Original-Date": "Sat, 21 Nov 2026 12:00:00 GMT",
			"Idempotency-Expires":       "Sun, 22 Nov 2026 12:00:00 GMT",
		}, again.Headers)
		require.NotContains(t, again.Headers, marks[1])
		require.Empty(t, again.MultiHeaders)
		require.Equal(t, 1, n)
	}
}

// The date is when the response was recorded, not when it is replayed.
func TestOriginalDate(t *testing.T) {
	now, n := noon, 0
	e, err := idem.New(memory(), &idem.Options{Now: func() time.Time { return now }})
	require.NoError(t, err)
	c, err := New(e, AnyRoute(charge), SingleTenant, nil)
	require.NoError(t, err)
	serve(t, c, payment(), func(context.Context) (*Response, error) {
		n++
		now = now.Add(3 * time.Second)
		return created(), nil
	})
	now = now.Add(time.Hour)
	again := serve(t, c, payment(), counting(&n, created()))
	require.Equal(t, noon.Add(3*time.Second).Format(http.TimeFormat), again.Headers[HeaderOriginalDate])
	require.Equal(t, noon.Add(24*time.Hour+3*time.Second).Format(http.TimeFormat), again.Headers[HeaderExpires])
	require.Equal(t, 1, n)
}

// A service may say it in its own words, and with its own statuses.
func TestOverridesOfTheProfile(t *testing.T) {
	rows := map[Code]Override{
		CodeKeyMissing: {Status: 428, Type: "https://example.com/problems/no-key", Title: "No key", Detail: "Send a key."},
		CodeKeyInvalid: {Detail: "Bad key."},
		CodeKeyReused:  {Status: 409},
	}
	for _, profile := range []Profile{IETF, Stripe} {
		own := maps.Clone(rows)
		c := newContract(t, memory(), func(o *Options) { o.Overrides, o.Profile = own, profile })
		clear(own)
		n := 0
		res := serve(t, c, payment(func(r *Request) { delete(r.Header, "idempotency-key") }), counting(&n, created()))
		require.Equal(t, 428, res.Status)
		want := `{"type":"https://example.com/problems/no-key","title":"No key","status":428,
			"code":"idempotency_key_missing","retryable":false,"detail":"Send a key."}`
		if profile == Stripe {
			want = `{"error":{"type":"idempotency_error","code":"idempotency_key_missing","retryable":false,"message":"Send a key."}}`
		}
		require.JSONEq(t, want, string(res.Body))

		res = serve(t, c, payment(func(r *Request) { r.Header["idempotency-key"] = []string{""} }), counting(&n, created()))
		p := problemIn(t, res)
		if profile == IETF {
			require.Equal(t, "Idempotency key invalid", p.Title)
		}
		p.Title = ""
		require.Equal(t, Problem{
			Type: "urn:idem-go:problem:idempotency_key_invalid", Status: 400, Code: CodeKeyInvalid, Detail: "Bad key: it is empty.",
		}, p, "what is not overridden stays")
		require.Zero(t, n)
		require.Equal(t, 409, after(t, c, created(), payment(func(r *Request) { r.Body = []byte(`{}`) })).Status)
	}
}

func TestMembersOfProblems(t *testing.T) {
	var members map[string]any
	c := newContract(t, memory(), func(o *Options) {
		o.ProblemMembers = func(ctx context.Context, r *Request, code Code) map[string]any {
			require.NotNil(t, ctx)
			require.Equal(t, "/payments", r.Route)
			require.Equal(t, CodeKeyMissing, code)
			return members
		}
	})
	ask := func() string {
		n := 0
		res := serve(t, c, payment(func(r *Request) { delete(r.Header, "idempotency-key") }), counting(&n, created()))
		require.Equal(t, ProblemMediaType, res.Headers["Content-Type"])
		return string(res.Body)
	}
	bare := ask()
	members = map[string]any{"instance": "/errors/1", "trace_id": "t-1", "help": map[string]any{"url": "https://example.com/?a=1&b=2"}}
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

// What the contract sets is what its Problem has, and nothing else can hide there.
func TestProblemNames(t *testing.T) {
	body, err := json.Marshal(Problem{RecordedStatus: 1})
	require.NoError(t, err)
	var members map[string]any
	require.NoError(t, json.Unmarshal(body, &members))
	require.Len(t, members, len(problemNames))
	for _, name := range problemNames {
		require.Contains(t, members, name)
	}
}

func TestMistakesInOverrides(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"profile":        {Options{Profile: 7}, "Profile is 7"},
		"code":           {Options{Overrides: map[Code]Override{"no_such": {}}}, `"no_such"`},
		"success":        {Options{Overrides: map[Code]Override{CodeKeyReused: {Status: 200}}}, "400 to 599"},
		"redirect":       {Options{Overrides: map[Code]Override{CodeKeyReused: {Status: 303}}}, "400 to 599"},
		"no status":      {Options{Overrides: map[Code]Override{CodeKeyReused: {Status: 600}}}, "400 to 599"},
		"negative":       {Options{Overrides: map[Code]Override{CodeKeyReused: {Status: -1}}}, "400 to 599"},
		"accepted early": {Options{Overrides: map[Code]Override{CodeAccepted: {Status: 199}}}, "400 to 599"},
		"type":           {Options{Overrides: map[Code]Override{CodeKeyReused: {Type: "http://[::1"}}}, "URI reference"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(newEngine(t, memory()), AnyRoute(charge), SingleTenant, &c.o)
			var config *idem.ConfigError
			require.ErrorAs(t, err, &config)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := New(newEngine(t, memory()), AnyRoute(charge), SingleTenant, &Options{Overrides: map[Code]Override{CodeAccepted: {Status: 200}}})
	require.NoError(t, err)
}
