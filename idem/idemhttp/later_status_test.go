package idemhttp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// Within the tenant the id is enough to see the result: it is in no log.
func TestTheIDOfAStatusIsNotLogged(t *testing.T) {
	var log bytes.Buffer
	fail := false
	contract, err := New(newEngine(t, memory()), Routes{"POST /statements": statement},
		func(context.Context, *Request) (string, error) {
			if fail {
				return "", errors.New("the session store is down")
			}
			return "acme", nil
		}, &Options{Later: LaterRoutes{"POST /statements": {Status: "/statements/{id}"}}})
	require.NoError(t, err)
	h := contract.Middleware(http.NotFoundHandler(), nil)
	w := answerOf(h, netRequest("POST", "/statements", `{"Month":"June"}`))
	require.Equal(t, 202, w.Code, w.Body)
	at := w.Header().Get("Location")
	fail = true
	require.Equal(t, 500, answerOf(h, withErrorLog(netRequest("GET", "/"+at, ""), &log)).Code)
	require.Contains(t, log.String(), `"/statements/{id}": "the session store is down"`)
	require.NotContains(t, log.String(), at)
}

// Anyone who asks for what is not theirs, or does not exist, gets one answer, headers and all:
// whatever there is under the id, and in whichever state.
func TestAStatusIsForItsTenantAlone(t *testing.T) {
	none := newLaterService(t, memory())
	want := map[string]heard{}
	for _, method := range []string{"GET", "HEAD", "DELETE"} {
		want[method] = none.send(method, none.server.URL+"/statements/"+strings.Repeat("A", 64), "blue", "")
		require.Equal(t, 404, want[method].status)
	}
	none.problem(want["GET"], 404, CodeStatusNotFound)
	require.Empty(t, want["HEAD"].body)
	for state, end := range map[string]func(b *laterService){
		"pending":   func(*laterService) {},
		"completed": func(b *laterService) { require.NoError(b, b.work(nil)) },
		"failed":    func(b *laterService) { require.Error(b, b.work(idem.Permanent(errors.New("no such account")))) },
		"unknown":   func(b *laterService) { require.Error(b, b.work(errors.New("time-out"))) },
		"released":  func(b *laterService) { require.Error(b, b.work(idem.NotExecuted(errors.New("busy")))) },
		"cancelled": func(b *laterService) { require.Equal(b, 204, b.ask("DELETE").Status) },
	} {
		t.Run(state, func(t *testing.T) {
			b := newLaterService(t, memory())
			at := b.accepted()
			end(b)
			id, own := b.at, b.send("GET", at, "blue", "")
			require.NotEqual(t, 404, own.status)
			raw, err := base64.RawURLEncoding.DecodeString(id)
			require.NoError(t, err)
			guess := func(at int) string {
				other := bytes.Clone(raw)
				other[at] ^= 1
				return base64.RawURLEncoding.EncodeToString(other)
			}
			asked := []string{
				guess(0), guess(len(raw) - 1), id[:43], id[:40], id + "A", id + "=", strings.ToUpper(id), testKey,
				"june", "~", "%00", "%2e%2e%2f", "*", "null", strings.Repeat("x", 4000),
			}
			serve(t, b.contract, &Request{
				Method: "POST", Path: "/payments", Header: map[string][]string{"idempotency-key": {testKey}, "tenant": {"blue"}},
			}, counting(new(int), created()))
			for _, op := range []idem.Operation{charge, statement} {
				digest, err := base64.RawURLEncoding.DecodeString(op.Key("blue", testKey).ID()[len("blue#"+op.Name+"#"):])
				require.NoError(t, err)
				for _, ticket := range []string{"", strings.Repeat("\x00", 15), strings.Repeat("\x00", 16)} {
					asked = append(asked, base64.RawURLEncoding.EncodeToString(append(digest, ticket...)))
				}
			}
			for method, want := range want {
				require.Equal(t, want, b.send(method, at, "green", ""), method)
				for _, id := range asked {
					require.Equal(t, want, b.send(method, b.server.URL+"/statements/"+id, "blue", ""), "%s %s", method, id)
				}
			}
			b.problem(b.send("GET", at, strings.Repeat("x", 2000), ""), 403, CodeTenantMissing)
			require.Equal(t, own, b.send("GET", at, "blue", ""), "nothing has changed")
		})
	}
}

// Its tenant cancels what no worker has begun, and a worker that comes then does not run it.
func TestPendingWorkIsCancelled(t *testing.T) {
	b := newLaterService(t, memory())
	at := b.accepted()
	b.problem(b.send("DELETE", at, "green", ""), 404, CodeStatusNotFound)
	for range 2 {
		got := b.send("DELETE", at, "blue", "")
		require.Equal(t, 204, got.status)
		require.Empty(t, got.body)
	}
	b.problem(b.send("GET", at, "blue", ""), 409, CodeCancelled)
	b.problem(b.post(june), 409, CodeCancelled)
	var failed *idem.RecordedError
	require.ErrorAs(t, b.work(nil), &failed)
	require.Equal(t, protocol.CodeCancelled, failed.Code)
	require.Zero(t, b.runs)
	rec, err := b.store.Get(t.Context(), b.handed[0])
	require.NoError(t, err)
	require.Empty(t, rec.Steps, "the input goes too")
	require.Equal(t, b.now().Add(idem.DefaultRetention), rec.ExpiresAt)
}

// A worker's claim lands between the look and the cancellation.
func TestAWorkerIsFasterThanItsCancellation(t *testing.T) {
	store := idemtest.NewFaults(memory())
	b := newLaterService(t, store)
	at := b.accepted()
	store.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
		require.NoError(t, b.work(nil))
		return c.Do(ctx)
	})
	b.problem(b.send("DELETE", at, "blue", ""), 409, CodeBegun)
	require.Equal(t, 200, b.send("GET", at, "blue", "").status)
	require.Equal(t, 1, b.runs)
}

// The store is down: no answer says anything of any id.
func TestAStatusOfAStoreThatIsDown(t *testing.T) {
	b := newLaterService(t, broken(memory(), idemtest.Refuse, idemtest.Get))
	for _, method := range []string{"GET", "DELETE"} {
		b.problem(b.send(method, b.server.URL+"/statements/"+strings.Repeat("A", 64), "blue", ""), 503, CodeStoreUnavailable)
	}
}

// Clients are asked to come at longer and longer intervals.
func TestRetryAfterGrowsWithTheWait(t *testing.T) {
	b := newLaterService(t, memory())
	at := b.accepted()
	for _, c := range []struct {
		waited time.Duration
		after  string
	}{{0, "1"}, {10 * time.Second, "3"}, {time.Minute, "15"}, {30 * time.Minute, "30"}} {
		b.passed.Store(int64(c.waited))
		require.Equal(t, c.after, b.send("GET", at, "blue", "").header.Get("Retry-After"))
	}
}

// A gateway that has matched a template knows whose path it is.
func TestPathsOfAStatus(t *testing.T) {
	b := newLaterService(t, memory())
	for _, c := range []struct {
		method, route, path string
		id                  string // none if it is not the contract's
	}{
		{"GET", "/statements/{id}", "/statements/7", "7"},
		{"get", "", "/statements/7", "7"},
		{"HEAD", "/{proxy+}", "/statements/7", "7"},
		{"DELETE", "/{rest...}", "/statements/7", "7"},
		{"GET", "/", "/statements/7", "7"},
		{method: "GET", route: "/statements/latest", path: "/statements/latest"},
		{method: "GET", route: "/{x}/{y}", path: "/statements/7"},
		{method: "GET", path: "/statements"},
		{method: "GET", path: "/statements/"},
		{method: "GET", path: "/statements/7/pages"},
		{method: "OPTIONS", route: "/statements/{id}", path: "/statements/7"},
		{method: "PUT", path: "/statements/7"},
	} {
		l, id := b.contract.later.(*laters).asked(&Request{Method: c.method, Route: c.route, Path: c.path})
		require.Equal(t, c.id != "", l != nil, "%+v", c)
		if l != nil {
			require.Equal(t, c.id, id)
		}
	}
	// A handler without accepted work is asked as ever, and nothing is looked up.
	require.Nil(t, newContract(t, memory()).later)
}

// Scripts follow where browsers do not.
func TestLocationsOfResults(t *testing.T) {
	for at, ok := range map[string]bool{
		"/a": true, "/a?b=c#d": true, "https://cdn.example/a": true, "http://cdn.example:81": true,
		"//evil.example/x": false, `/\evil.example`: false, `\\evil`: false,
		"javascript:alert(1)": false, "data:text/html,x": false,
		"http:evil": false, "https://": false, "http://:80/": false, "HTTPS://cdn.example": true,
		"?x": false, "a/b": false, "/a b": false, "/a\r\nSet-Cookie: x=1": false, "/ü": false,
	} {
		require.Equal(t, ok, isLinkTarget(at), "%q", at)
	}
}

func TestWaysToAStatus(t *testing.T) {
	for _, c := range []struct{ from, status, path, want string }{
		{"/statements", "/statements/{id}", "/statements", "/statements/ID"},
		{"/statements", "/status/{id}", "/prod/statements", "/prod/status/ID"},
		{"/a/{account}/statements", "/a/{account}/statements/{id}", "/a/7/statements", "/a/7/statements/ID"},
		{"/a/{account}/statements", "/a/{account}/{id}", "/a/7/statements", "/a/7/ID"},
		{"/a/{account}/statements", "/requests/{id}", "/v1/a/7/statements", "/v1/requests/ID"},
		{"/a/b", "/{id}", "/a/b", "/ID"},
		{"/a", "/{id}", "/a", "/ID"},
		{"/a", "/x:y/{id}", "/a", "/x:y/ID"},
	} {
		up, ok := wayTo(c.from, c.status)
		require.True(t, ok, c.status)
		base := httptest.NewRequest("POST", "https://example.com"+c.path, nil).URL
		ref, err := base.Parse(up + "ID")
		require.NoError(t, err)
		require.Equal(t, "https://example.com"+c.want, ref.String())
	}
}

// A route that was executed at once before its service accepts it for later.
func TestAnOutcomeOfBeforeIsReplayed(t *testing.T) {
	store := memory()
	before := contractFor(t, newEngine(t, store), Routes{"POST /statements": statement}, tenantHeader)
	n := 0
	serve(t, before, asked(june), counting(&n, created()))
	b := newLaterService(t, store)
	res := b.send("POST", b.server.URL+"/statements", "blue", june)
	require.Equal(t, 201, res.status, res.body)
	require.Equal(t, "true", res.header.Get(HeaderReplayed))
	require.Empty(t, b.handed)
}
