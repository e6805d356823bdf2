package idemhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

func storedText(t *testing.T, store idem.Store) string {
	t.Helper()
	rec, err := store.Get(t.Context(), charge.Key("blue", testKey).ID())
	require.NoError(t, err)
	require.Equal(t, idem.Completed, rec.State)
	body, err := store.Result(t.Context(), rec)
	require.NoError(t, err)
	return string(body)
}

// What a newer version never stores is not replayed from an older one's record either.
func TestReplayWithoutHeadersThatAreNeverStored(t *testing.T) {
	c := newContract(t, memory())
	body := created().appendHead(nil, everyHeader)
	body = bytes.Replace(body, []byte(`"headers":{`), []byte(`"headers":{"Age":"7",`), 1)
	res, err := c.replay(t.Context(), payment(), &idem.Outcome{Body: body})
	require.NoError(t, err)
	require.Equal(t, "application/json", res.Headers["Content-Type"])
	require.NotContains(t, res.Headers, "Age")
}

// Headers that are removed go to the first caller alone. With a list of what is kept nothing else is stored, not
// even what the handler adds one day.
func TestOnlyHeaders(t *testing.T) {
	given := created()
	given.Headers["X-Trace"], given.Headers["eTag"], given.Headers["CONTENT-encoding"] = "secret", "v1", "br"
	given.MultiHeaders = map[string][]string{"x-Customer": {"secret"}, "x-TRACE": {"secret"}, "vary": {"Accept"}}
	given.Headers[strings.Repeat("x", 100)] = "secret"
	given.Cookies = []string{"session=secret"}
	vary := map[string][]string{"vary": {"Accept"}}
	for name, tc := range map[string]struct {
		redact func(*Response)
		etag   string
		multi  map[string][]string
	}{
		"some":    {OnlyHeaders("ETAG", "Vary"), "v1", vary},
		"none":    {OnlyHeaders(), "", nil},
		"without": {WithoutHeaders("X-trace", "X-CUSTOMER", strings.Repeat("x", 100)), "v1", vary},
	} {
		t.Run(name, func(t *testing.T) {
			store, n := memory(), 0
			c := newContract(t, store, func(o *Options) { o.Redact = tc.redact })
			require.Equal(t, given, serve(t, c, payment(), counting(&n, given)), "the first caller has them")
			require.NotContains(t, storedText(t, store), "secret")
			again := serve(t, c, payment(), counting(&n, given))
			require.Equal(t, 1, n)
			require.Equal(t, given.Body, again.Body)
			require.Equal(t, given.Headers["Content-Type"], again.Headers["Content-Type"])
			require.Equal(t, "br", again.Headers["CONTENT-encoding"])
			require.Equal(t, tc.multi, again.MultiHeaders)
			require.Equal(t, tc.etag, again.Headers["eTag"])
			require.Equal(t, "true", again.Headers[HeaderReplayed], "the marks of a replay are no headers of the handler's")
			require.Empty(t, again.Cookies)
			require.NotContains(t, fmt.Sprint(again), "secret")
		})
	}
	require.Panics(t, func() { OnlyHeaders("a b") })
	require.Panics(t, func() { OnlyHeaders("Set-Cookie") })
	require.Panics(t, func() { WithoutHeaders("X-Trace:") })
}

// Redact works on a copy: the first caller has the whole response, the table and later callers have what is left.
func TestRedact(t *testing.T) {
	given := &Response{
		Status: 201, Headers: map[string]string{"X-Secret": "secret"}, Body: []byte(`{"token":"secret"}`),
		MultiHeaders: map[string][]string{"X-Also": {"secret", "b"}}, Cookies: []string{"a=secret"},
	}
	store, n := memory(), 0
	c := newContract(t, store, func(o *Options) {
		o.Redact = func(r *Response) {
			require.Equal(t, given, r)
			delete(r.Headers, "X-Secret")
			r.MultiHeaders["X-Also"][0] = "a"
			copy(r.Body, `{"token":"*****!"}`)
		}
	})
	whole := given.clone()
	require.Equal(t, whole, serve(t, c, payment(), counting(&n, given)))
	require.Equal(t, whole, given)
	require.NotContains(t, storedText(t, store), "secret")
	again := serve(t, c, payment(), counting(&n, given))
	require.Equal(t, `{"token":"*****!"}`, string(again.Body))
	require.Equal(t, map[string][]string{"X-Also": {"a", "b"}}, again.MultiHeaders)
	require.NotContains(t, again.Headers, "X-Secret")
	require.Equal(t, 1, n)
	encoded, err := c.Encode(given)
	require.NoError(t, err)
	require.NotContains(t, string(encoded.Body), "secret", "what an operator gives is kept in the same way")
}

// A redaction that fails costs the recorded response, never the fact, and lets nothing through.
func TestRedactThatFails(t *testing.T) {
	for name, redact := range map[string]func(*Response){
		"panics":               func(r *Response) { panic("secret") },
		"changes the status":   func(r *Response) { r.Status = 200 },
		"leaves no status":     func(r *Response) { r.Status = 0 },
		"panics half-way done": func(r *Response) { r.Body = nil; panic(errors.New("secret")) },
	} {
		t.Run(name, func(t *testing.T) {
			store, n := memory(), 0
			c := newContract(t, store, func(o *Options) { o.Redact = redact })
			given := &Response{Status: 201, Body: []byte("secret")}
			require.Equal(t, given, serve(t, c, payment(), counting(&n, given)))
			require.NotContains(t, storedText(t, store), "secret")
			again := serve(t, c, payment(), counting(&n, given))
			require.Equal(t, 409, again.Status)
			require.Contains(t, string(again.Body), CodeOutcomeUnavailable)
			require.Contains(t, string(again.Body), `"recorded_status":201`)
			require.Equal(t, 1, n)
		})
	}
}

// Refresh sees this request and works on a copy; the contract's marks come last.
func TestRefresh(t *testing.T) {
	type key struct{}
	store, n := memory(), 0
	c := newContract(t, store, func(o *Options) {
		o.Refresh = func(ctx context.Context, r *Request, res *Response) {
			require.Equal(t, "here", ctx.Value(key{}))
			require.NotContains(t, res.Headers, HeaderReplayed)
			res.Headers["Access-Control-Allow-Origin"] = r.header("Origin")[0]
			res.Headers["idempotency-replayed"] = "spoofed"
			res.Cookies = []string{"fresh=1"}
			copy(res.Body, `{"id":"fresh"`)
		}
	})
	before := ""
	for i, origin := range []string{"https://a.example", "https://b.example", "https://c.example"} {
		r := payment(func(r *Request) { r.Header["ORIGIN"] = []string{origin} })
		res, err := c.Serve(context.WithValue(t.Context(), key{}, "here"), r, counting(&n, created()))
		require.NoError(t, err)
		if i == 0 {
			require.Equal(t, created(), res, "a first response is fresh")
			before = storedText(t, store)
			continue
		}
		require.Equal(t, origin, res.Headers["Access-Control-Allow-Origin"])
		require.Equal(t, "true", res.Headers[HeaderReplayed])
		require.NotContains(t, res.Headers, "idempotency-replayed")
		require.Equal(t, []string{"fresh=1"}, res.Cookies)
		require.True(t, strings.HasPrefix(string(res.Body), `{"id":"fresh"`))
	}
	require.Equal(t, before, storedText(t, store))
	require.Equal(t, 1, n)
}

// Two versions of a service side by side: each gives the other's responses if it
// can tell how, and says so if it cannot. Nothing is executed again.
func TestResponseVersions(t *testing.T) {
	migrate := func(to int) func(int, *Response) error {
		return func(from int, res *Response) error {
			if from > 2 {
				return errors.New("secret: unknown version")
			}
			res.Headers["X-Migrated"] = fmt.Sprint(from, " to ", to)
			res.Body = append(res.Body, '!')
			return nil
		}
	}
	for name, row := range map[string]struct {
		stored, own int
		migrate     bool
		want        string // X-Migrated, "as it is" or none for a mismatch
	}{
		"same":                 {1, 1, true, "as it is"},
		"unversioned":          {0, 0, false, "as it is"},
		"older":                {1, 2, true, "1 to 2"},
		"first version":        {0, 1, true, "0 to 1"},
		"newer, in old code":   {2, 1, true, "2 to 1"},
		"older, no function":   {1, 2, false, ""},
		"newer, no function":   {2, 1, false, ""},
		"version taken away":   {1, 0, false, ""},
		"function that cannot": {3, 2, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			store, n := memory(), 0
			serve(t, newContract(t, store, func(o *Options) { o.ResponseVersion = row.stored }),
				payment(), counting(&n, created()))
			before := storedText(t, store)
			c := newContract(t, store, func(o *Options) {
				o.ResponseVersion = row.own
				if row.migrate {
					o.Migrate = migrate(row.own)
				}
			})
			for range 2 {
				res := serve(t, c, payment(), counting(&n, created()))
				switch row.want {
				case "":
					require.Equal(t, 503, res.Status)
					require.Contains(t, string(res.Body), CodeVersionMismatch)
					require.Contains(t, string(res.Body), `"retryable":true`)
					require.NotEmpty(t, res.Headers["Retry-After"])
					require.NotContains(t, string(res.Body), "secret")
				case "as it is":
					require.Equal(t, created().Body, res.Body)
				default:
					require.Equal(t, row.want, res.Headers["X-Migrated"])
					require.Equal(t, `{"id":"ch_1"}!`, string(res.Body))
					require.Equal(t, "true", res.Headers[HeaderReplayed])
				}
			}
			require.Equal(t, before, storedText(t, store))
			require.Equal(t, 1, n)
		})
	}
}

// The service's own meaning of a status, which a single operation or response still overrides.
func TestStatusPolicyIsConfigurable(t *testing.T) {
	policy := map[int]idem.Class{
		503: idem.ClassNotExecuted, 403: idem.ClassCompleted, 404: idem.ClassNotExecuted, 202: idem.ClassUncertain,
		500: idem.ClassCompleted,
	}
	c := newContract(t, memory(), func(o *Options) { o.Status = policy })
	delete(policy, 404) // the options are copied
	for status, runs := range map[int]int{503: 2, 403: 1, 404: 2, 202: 1, 500: 1, 201: 1, 429: 2} {
		n := 0
		r := payment(func(r *Request) { r.Header["idempotency-key"] = []string{fmt.Sprint("a-key-for-status-", status)} })
		given := &Response{Status: status, Body: []byte("x")}
		require.Equal(t, given, serve(t, c, r, counting(&n, given)))
		again := serve(t, c, r, counting(&n, given))
		require.Equal(t, runs, n, status)
		if status == 202 {
			require.Contains(t, string(again.Body), CodeOutcomeUnknown)
		} else {
			require.Equal(t, status, again.Status)
		}
	}
	n := 0
	next := func(ctx context.Context) (*Response, error) {
		n++
		idem.SetNotExecuted(ctx)
		return &Response{Status: 403}, nil
	}
	serve(t, c, payment(), next)
	serve(t, c, payment(), next)
	require.Equal(t, 2, n)
}

// A hook that panics, or leaves no status that can be sent, costs its own answer and nothing else:
// the record replays as soon as the hook is mended.
func TestHooksThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		hook func(*Options)
		want int
	}{
		"Refresh": {func(o *Options) { o.Refresh = func(context.Context, *Request, *Response) { panic("refresh") } }, 503},
		"Migrate": {func(o *Options) {
			o.ResponseVersion = 1
			o.Migrate = func(int, *Response) error { panic("migrate") }
		}, 503},
		"Refresh, no status": {func(o *Options) {
			o.Refresh = func(_ context.Context, _ *Request, r *Response) { r.Status = 0 }
		}, 503},
		"Migrate, no status": {func(o *Options) {
			o.ResponseVersion, o.Migrate = 2, func(_ int, r *Response) error { r.Status = 99; return nil }
		}, 503},
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

// Headers about the body's bytes are dropped where a hook has changed the bytes, unless the hook has set them again.
func TestHeadersOfAChangedBody(t *testing.T) {
	full := func() *Response {
		res := created()
		for _, name := range []string{"content-LENGTH", "ETag", "Content-MD5", "Digest", "Repr-Digest",
			"Content-Digest", "X-Kept"} {
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
		"Redact": {func(o *Options) { o.Redact = change }, kept},
		"Refresh": {func(o *Options) {
			o.Refresh = func(_ context.Context, _ *Request, res *Response) { change(res) }
		}, kept},
		"Refresh, new tag": {func(o *Options) {
			o.Refresh = func(_ context.Context, _ *Request, res *Response) {
				change(res)
				res.Headers["ETag"] = "new"
			}
		}, renewed},
		"Refresh, Base64": {func(o *Options) {
			o.Refresh = func(_ context.Context, _ *Request, res *Response) { res.Base64 = true }
		}, kept},
		"Refresh, the same body": {func(o *Options) {
			o.Refresh = func(context.Context, *Request, *Response) {}
		}, full().Headers},
	} {
		t.Run(name, func(t *testing.T) {
			contract, n := newContract(t, memory(), c.hook), 0
			require.Equal(t, full(), serve(t, contract, payment(), counting(&n, full())), "the first caller gets it all")
			again := serve(t, contract, payment(), counting(&n, full()))
			require.Equal(t, "true", again.Headers[HeaderReplayed])
			dropMarks(again)
			require.Equal(t, c.want, again.Headers)
			require.Equal(t, name == "Refresh, the same body", len(again.MultiHeaders) > 0)
		})
	}
	// Migration comes before refreshing.
	store, n := memory(), 0
	serve(t, newContract(t, store), payment(), counting(&n, full()))
	migrated := serve(t, newContract(t, store, func(o *Options) {
		o.ResponseVersion = 1
		o.Migrate = func(_ int, res *Response) error { res.Body = []byte("migrated"); return nil }
		o.Refresh = func(_ context.Context, _ *Request, res *Response) { res.Body = append(res.Body, " and fresh"...) }
	}), payment(), counting(&n, full()))
	require.Equal(t, "migrated and fresh", string(migrated.Body))
	require.NotContains(t, migrated.Headers, "ETag")
}

// Refusals are not cached and have the headers that the service adds, which cannot replace the contract's own.
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
	}, serve(t, c, payment(noKey, func(r *Request) { r.Header["origin"] = []string{"https://shop.example"} }),
		counting(&n, created())).Headers)
	require.Zero(t, n)
}
