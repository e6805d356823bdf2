package idemhttp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// A template whose parameters the gateway does not tell: the path tells two
// resources apart, wherever the parameter stands.
func TestResourcesWithoutParameters(t *testing.T) {
	for _, c := range []struct {
		route, one, two string
		parameters      map[string]string
	}{
		{"/payments/{id}/refunds", "/payments/7/refunds", "/payments/8/refunds", nil},
		{"/a/{x}/b/{y}", "/a/1/b/2", "/a/1/b/3", map[string]string{"x": "1"}},
		{"/files/{rest+}", "/files/a/b", "/files/a/c", map[string]string{}},
		{"/files/{rest...}", "/files/a/b", "/files/a/c", map[string]string{"rest": ""}},
	} {
		contract, err := New(newEngine(t, memory()), AnyRoute(charge), SingleTenant, nil)
		require.NoError(t, err)
		n := 0
		at := func(path string) *Response {
			return serve(t, contract, payment(func(r *Request) {
				r.Route, r.Path, r.PathParameters = c.route, path, c.parameters
			}), counting(&n, created()))
		}
		require.Equal(t, 201, at(c.one).Status)
		require.Equal(t, 422, at(c.two).Status, c.route)
		require.Equal(t, "true", at(c.one).Headers[HeaderReplayed])
		require.Equal(t, 1, n)
	}
	// Where the parameters tell all, how the path is spelled does not count.
	whole := payment(func(r *Request) { r.Route, r.PathParameters = "/p/{id}", map[string]string{"id": "7"} })
	require.Equal(t, whole.PathParameters, whole.parameters())
}

// What a hook leaves is a response that can be sent.
func TestHooksThatSpoilTheStatus(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"refresh": func(o *Options) { o.Refresh = func(_ context.Context, _ *Request, r *Response) { r.Status = 0 } },
		"migrate": func(o *Options) {
			o.ResponseVersion, o.Migrate = 2, func(_ int, r *Response) error { r.Status = 99; return nil }
		},
	} {
		store := memory()
		n := 0
		handler := func(w http.ResponseWriter, _ *http.Request) { n++; w.WriteHeader(201) }
		require.Equal(t, 201, answerOf(mounted(netContract(t, store), nil, handler), netRequest("POST", "/payments", `{}`)).Code)
		again := answerOf(mounted(netContract(t, store, change), nil, handler), netRequest("POST", "/payments", `{}`))
		require.Equal(t, 503, again.Code, name)
		require.Contains(t, again.Body.String(), CodeVersionMismatch)
		require.Equal(t, 1, n)
	}
}

// A body that somebody has read before is not taken for an empty one, under which
// different requests would be the same.
func TestBodyThatWasReadBefore(t *testing.T) {
	for name, read := range map[string]func(*http.Request){
		"all":  func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) },
		"form": func(r *http.Request) { r.ContentLength = -1; _ = r.ParseForm() },
	} {
		n := 0
		h := mounted(netContract(t, memory()), nil, func(http.ResponseWriter, *http.Request) { n++ })
		for _, body := range []string{"amount=1", "amount=2"} {
			r := netRequest("POST", "/payments", body)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			read(r)
			w := answerOf(h, r)
			require.Equal(t, 500, w.Code, name)
			require.NotContains(t, w.Body.String(), "middleware")
		}
		require.Zero(t, n)
	}
}

// The options' functions may read the body without taking it from the handler.
func TestOptionsMayReadTheBody(t *testing.T) {
	h := mounted(netContract(t, memory()), &MiddlewareOptions{
		Identity: func(r *http.Request) Identity { return Identity{AccountID: r.FormValue("account")} },
		Route:    func(r *http.Request) string { return "/" + r.FormValue("route") },
	}, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.PostFormValue("account")) })
	r := netRequest("POST", "/payments", "account=7&route=payments")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := answerOf(h, r)
	require.Equal(t, 200, w.Code)
	require.Equal(t, "7", w.Body.String())
}

// A compressed body is bytes, whatever is in it.
func TestCompressedBody(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, `{"amount":1}`)
	require.NoError(t, z.Close())
	c := newContract(t, memory())
	n := 0
	send := func(body []byte) *Response {
		return serve(t, c, payment(func(r *Request) {
			r.Header["content-encoding"], r.Body = []string{"gzip"}, body
		}), counting(&n, created()))
	}
	require.Equal(t, 201, send(packed.Bytes()).Status)
	require.Equal(t, "true", send(packed.Bytes()).Headers[HeaderReplayed])
	require.Equal(t, 422, send([]byte("else")).Status)
	require.Equal(t, 1, n)
}

// A mux's redirect to a clean path must not take the key that the client sends
// along to it.
func TestRedirectOfTheMuxTakesNoKey(t *testing.T) {
	mux := http.NewServeMux()
	n := 0
	mux.HandleFunc("/payments/", func(w http.ResponseWriter, _ *http.Request) { n++; w.WriteHeader(201) })
	c, err := New(newEngine(t, memory()), AnyRoute(charge), SingleTenant, nil)
	require.NoError(t, err)
	h := c.Middleware(mux, nil)
	for range 2 {
		first := answerOf(h, netRequest("POST", "/payments", `{}`))
		require.Contains(t, []int{301, 307, 308}, first.Code)
		require.Equal(t, "/payments/", first.Header().Get("Location"))
		require.Equal(t, 201, answerOf(h, netRequest("POST", "/payments/", `{}`)).Code)
	}
	require.Equal(t, 1, n)
}

// A response that is too large records nothing where the handler, or the
// operation, says that nothing was executed: then it is not called recorded.
func TestTooLargeResponseOfNothingExecuted(t *testing.T) {
	n := 0
	h := mounted(netContract(t, memory()), &MiddlewareOptions{MaxResponse: 1}, func(w http.ResponseWriter, r *http.Request) {
		n++
		idem.SetNotExecuted(r.Context())
		w.WriteHeader(400)
		_, _ = io.WriteString(w, "too large")
	})
	for range 2 {
		w := answerOf(h, netRequest("POST", "/payments", `{}`))
		require.Equal(t, 400, w.Code)
		require.Empty(t, w.Body.String())
	}
	require.Equal(t, 2, n)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Transports of others may leave out the body, or everything: nothing panics.
func TestTransportsThatLeaveThingsOut(t *testing.T) {
	n := 0
	c := newTrial(t, roundTripper(func(*http.Request) (*http.Response, error) {
		n++
		return &http.Response{StatusCode: []int{503, 201}[min(n, 2)-1], Header: http.Header{}}, nil
	}), nil)
	code, _ := c.do(t, request(t, "POST", "http://service.test/", "order"))
	require.Equal(t, 201, code)
	require.Equal(t, 2, n)

	n = 0
	c = newTrial(t, roundTripper(func(*http.Request) (*http.Response, error) {
		n++
		return nil, nil
	}), nil)
	_, err := c.Do(request(t, "POST", "http://service.test/", "order"))
	var sent *SendError
	require.True(t, errors.As(err, &sent))
	require.NotEmpty(t, sent.Key)
	require.Equal(t, DefaultMaxAttempts, n)
}
