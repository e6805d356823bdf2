package idemhttp

import (
	"context"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

// A hook that panics costs its own answer and nothing else: the record replays as
// soon as the hook is mended.
func TestHooksThatPanic(t *testing.T) {
	for name, c := range map[string]struct {
		hook func(*Options)
		want int
	}{
		"Refresh": {func(o *Options) { o.Refresh = func(context.Context, *Request, *Response) { panic("refresh") } }, 503},
		"Migrate": {func(o *Options) { o.ResponseVersion = 1; o.Migrate = func(int, *Response) error { panic("migrate") } }, 503},
		"OnRefusal": {func(o *Options) {
			o.OnRefusal = func(_ context.Context, _ *Request, f *Refusal) {
				f.Status = 500
				panic("refusal")
			}
		}, 422},
	} {
		t.Run(name, func(t *testing.T) {
			store, n := memory(), 0
			serve(t, newContract(t, store), payment(), counting(&n, created()))
			r := payment()
			if c.want == 422 {
				r.Body = []byte(`{}`)
			}
			require.NotPanics(t, func() {
				require.Equal(t, c.want, serve(t, newContract(t, store, c.hook), r, counting(&n, created())).Status)
			})
			require.Equal(t, "true", serve(t, newContract(t, store), payment(), counting(&n, created())).Headers[HeaderReplayed])
			require.Equal(t, 1, n)
		})
	}
}

// What told of the body's bytes goes with them where a hook has changed them, unless
// the hook has set it anew.
func TestHeadersOfAChangedBody(t *testing.T) {
	full := func() *Response {
		res := created()
		for _, name := range []string{"content-LENGTH", "ETag", "Content-MD5", "Digest", "Repr-Digest", "Content-Digest", "X-Kept"} {
			res.Headers[name] = "old"
		}
		res.MultiHeaders = map[string][]string{"Etag": {"old"}}
		return res
	}
	kept := map[string]string{"Content-Type": "application/json", "X-Kept": "old"}
	renewed := maps.Clone(kept)
	renewed["ETag"] = "new"
	change := func(res *Response) { res.Body = []byte("{}") }
	for name, c := range map[string]struct {
		hook func(*Options)
		want map[string]string
	}{
		"Redact":  {func(o *Options) { o.Redact = change }, kept},
		"Refresh": {func(o *Options) { o.Refresh = func(_ context.Context, _ *Request, res *Response) { change(res) } }, kept},
		"Refresh, new tag": {func(o *Options) {
			o.Refresh = func(_ context.Context, _ *Request, res *Response) {
				change(res)
				res.Headers["ETag"] = "new"
			}
		}, renewed},
		"Refresh, Base64": {func(o *Options) {
			o.Refresh = func(_ context.Context, _ *Request, res *Response) { res.Base64 = true }
		}, kept},
		"Refresh, the same body": {func(o *Options) { o.Refresh = func(context.Context, *Request, *Response) {} }, full().Headers},
	} {
		t.Run(name, func(t *testing.T) {
			contract, n := newContract(t, memory(), c.hook), 0
			require.Equal(t, full(), serve(t, contract, payment(), counting(&n, full())), "the first caller gets it all")
			again := serve(t, contract, payment(), counting(&n, full()))
			require.Equal(t, "true", again.Headers[HeaderReplayed])
			for _, mark := range []string{HeaderReplayed, HeaderOriginalDate, HeaderExpires} {
				delete(again.Headers, mark)
			}
			require.Equal(t, c.want, again.Headers)
			require.Equal(t, name == "Refresh, the same body", len(again.MultiHeaders) > 0)
		})
	}
	store, n := memory(), 0
	serve(t, newContract(t, store), payment(), counting(&n, full()))
	migrated := newContract(t, store, func(o *Options) {
		o.ResponseVersion = 1
		o.Migrate = func(_ int, res *Response) error { change(res); return nil }
	})
	require.NotContains(t, serve(t, migrated, payment(), counting(&n, full())).Headers, "ETag")
}

// When a response was made is each exchange's own.
func TestDatesAreNotReplayed(t *testing.T) {
	given := created()
	given.Headers["date"], given.Headers["Age"] = "Sat, 21 Nov 2026 01:00:00 GMT", "7"
	c, n := newContract(t, memory()), 0
	require.Equal(t, given, serve(t, c, payment(), counting(&n, given)))
	again := serve(t, c, payment(), counting(&n, given))
	require.NotContains(t, again.Headers, "date")
	require.NotContains(t, again.Headers, "Age")
}

// Refusals are not cached and have the headers that the service adds, which cannot replace the
// contract's own.
func TestHeadersOfRefusals(t *testing.T) {
	noKey := func(r *Request) { delete(r.Header, "idempotency-key") }
	n := 0
	require.Equal(t, map[string]string{"Content-Type": ProblemMediaType, "Cache-Control": "no-store"},
		serve(t, newContract(t, memory()), payment(noKey), counting(&n, created())).Headers)

	c := newContract(t, memory(), func(o *Options) {
		o.OnRefusal = func(_ context.Context, r *Request, f *Refusal) {
			require.Equal(t, CodeKeyMissing, f.Code)
			f.Headers = map[string]string{
				"Link":                        `<https://example.com/docs#idempotency>; rel="describedby"`,
				"Access-Control-Allow-Origin": r.Header["origin"][0], "cache-control": "private",
				"content-type": "text/html", "Retry-After": "1", "LOCATION": "/x", "Content-Length": "1",
				HeaderReplayed: "true", "Bad name": "x", "X-Split": "a\r\nb: c", "X-Nul": "a\x00",
			}
		}
	})
	require.Equal(t, map[string]string{
		"Content-Type": ProblemMediaType, "cache-control": "private", "Access-Control-Allow-Origin": "https://shop.example",
		"Link": `<https://example.com/docs#idempotency>; rel="describedby"`,
	}, serve(t, c, payment(noKey, func(r *Request) { r.Header["origin"] = []string{"https://shop.example"} }), counting(&n, created())).Headers)
	require.Zero(t, n)
}
