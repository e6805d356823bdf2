package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

// serve puts a gateway on a free loopback port.
func serve(t *testing.T, routes map[string]gateway.Invoke, options *gateway.Options) *httptest.Server {
	t.Helper()
	handler, err := gateway.New(routes, options)
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

// recorder is a function that keeps its events and gives a fixed answer.
type recorder struct {
	mu     sync.Mutex
	events [][]byte
	answer string
	err    error
}

func (f *recorder) invoke(_ context.Context, event []byte) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, event)
	return []byte(f.answer), f.err
}

func (f *recorder) last(t *testing.T) events.APIGatewayV2HTTPRequest {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	require.NotEmpty(t, f.events)
	var event events.APIGatewayV2HTTPRequest
	decoder := json.NewDecoder(bytes.NewReader(f.events[len(f.events)-1]))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&event))
	return event
}

func (f *recorder) calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.events)
}

type reply struct {
	*http.Response
	body string
}

func send(t *testing.T, method, url, body string, edit func(*http.Request)) reply {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	request, err := http.NewRequest(method, url, reader)
	require.NoError(t, err)
	if edit != nil {
		edit(request)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return reply{response, string(raw)}
}

func TestEvent(t *testing.T) {
	fn := &recorder{answer: `{"ok":true}`}
	server := serve(t, map[string]gateway.Invoke{"POST /payments": fn.invoke}, nil)
	const body = `{"paymentId":"p-1","note":"größe"}`
	before := time.Now()
	got := send(t, "POST", server.URL+"/payments?expand=a&expand=b%20c&x=%2C", body, func(r *http.Request) {
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
		r.Header["X-Tag"] = []string{"web", "eu, west"}
		r.Header["Cookie"] = []string{"a=1; b=2", "c=3"}
		r.Header.Set("User-Agent", "tester/1")
		r.Header.Set("X-Forwarded-For", "198.51.100.9")
		r.Header.Set("Connection", "X-Private")
		r.Header.Set("X-Private", "hop")
		r.Header.Set("Te", "trailers")
	})
	require.Equal(t, 200, got.StatusCode)

	event := fn.last(t)
	require.Equal(t, []string{"2.0", "POST /payments", "/payments", "expand=a&expand=b%20c&x=%2C", body},
		[]string{event.Version, event.RouteKey, event.RawPath, event.RawQueryString, event.Body})
	require.Equal(t, map[string]string{"expand": "a,b c", "x": ","}, event.QueryStringParameters)
	require.Equal(t, []string{"a=1", "b=2", "c=3"}, event.Cookies)
	require.False(t, event.IsBase64Encoded)
	require.Empty(t, event.PathParameters)

	trace := event.Headers["x-amzn-trace-id"]
	require.Regexp(t, `^Root=1-[0-9a-f]{8}-[0-9a-f]{24}$`, trace)
	host := strings.TrimPrefix(server.URL, "http://")
	require.Equal(t, map[string]string{
		"accept-encoding": "gzip", "content-length": "36", "content-type": "application/json; charset=utf-8",
		"host": host, "idempotency-key": "8e03978e-40d5-43e8-bc93-6894a57f9324", "user-agent": "tester/1",
		"x-amzn-trace-id": trace, "x-forwarded-for": "198.51.100.9, 127.0.0.1",
		"x-forwarded-port": strings.Split(host, ":")[1], "x-forwarded-proto": "http", "x-tag": "web,eu, west",
	}, event.Headers)

	rc := event.RequestContext
	require.Nil(t, rc.Authorizer)
	require.Equal(t, events.APIGatewayV2HTTPRequestContextHTTPDescription{
		Method: "POST", Path: "/payments", Protocol: "HTTP/1.1", SourceIP: "127.0.0.1", UserAgent: "tester/1",
	}, rc.HTTP)
	require.Equal(t, []string{"POST /payments", "000000000000", "$default", "local",
		"local.execute-api.us-east-1.amazonaws.com", "local"},
		[]string{rc.RouteKey, rc.AccountID, rc.Stage, rc.APIID, rc.DomainName, rc.DomainPrefix})
	require.Equal(t, got.Header.Get("Apigw-Requestid"), rc.RequestID)
	require.Len(t, rc.RequestID, 16)
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", rc.Time)
	require.NoError(t, err)
	require.Equal(t, at.Unix(), rc.TimeEpoch/1000)
	require.GreaterOrEqual(t, rc.TimeEpoch, before.UnixMilli())
}

func TestEventBody(t *testing.T) {
	fn := &recorder{answer: `{}`}
	server := serve(t, map[string]gateway.Invoke{"$default": fn.invoke}, nil)
	for _, c := range []struct {
		contentType, body, want string
		encoded                 bool
	}{
		{"application/json", `{"a":1}`, `{"a":1}`, false},
		{"Application/XML; charset=utf-8", "<a/>", "<a/>", false},
		{"application/javascript", "1", "1", false},
		{"text/csv", "a;b", "a;b", false},
		{"", `{"a":1}`, "eyJhIjoxfQ==", true},
		{"application/x-www-form-urlencoded", "a=1", "YT0x", true},
		{"application/problem+json", `{}`, "e30=", true},
		{"application/octet-stream", "\x00\xff", "AP8=", true},
		{"text/plain", "\xff\xfe", "//4=", true},
		{"application/json", "", "", false},
		{"", "", "", false},
	} {
		send(t, "POST", server.URL+"/x", c.body, func(r *http.Request) {
			if c.contentType != "" {
				r.Header.Set("Content-Type", c.contentType)
			}
		})
		event := fn.last(t)
		require.Equal(t, c.want, event.Body, "%q %q", c.contentType, c.body)
		require.Equal(t, c.encoded, event.IsBase64Encoded, "%q %q", c.contentType, c.body)
	}
	send(t, "POST", server.URL+"/x", "", func(r *http.Request) { // chunked
		r.Body = io.NopCloser(strings.NewReader("abc"))
		r.ContentLength = -1
		r.Header.Set("Content-Type", "text/plain")
	})
	event := fn.last(t)
	require.Equal(t, "abc", event.Body)
	require.Equal(t, "3", event.Headers["content-length"])
	require.NotContains(t, event.Headers, "transfer-encoding")

	send(t, "GET", server.URL+"/a%20b/%C3%A9?", "", nil)
	event = fn.last(t)
	require.Equal(t, "/a b/é", event.RawPath)
	require.Equal(t, "$default", event.RouteKey)
	require.Nil(t, event.QueryStringParameters)
	require.NotContains(t, event.Headers, "content-length")
}

// Without claims there is no authorizer. What has no route is not found, with and without a token.
func TestClaims(t *testing.T) {
	fn := &recorder{answer: `{}`}
	server := serve(t, map[string]gateway.Invoke{"GET /": fn.invoke}, &gateway.Options{
		Authorize: gateway.Tokens(func(r *http.Request) (map[string]string, bool) {
			return nil, r.Header.Get("Authorization") != ""
		}),
	})
	require.Equal(t, 404, send(t, "GET", server.URL+"/elsewhere", "", nil).StatusCode)
	require.Equal(t, 401, send(t, "GET", server.URL+"/", "", nil).StatusCode)
	send(t, "GET", server.URL+"/", "", func(r *http.Request) { r.Header.Set("Authorization", "none") })
	require.Nil(t, fn.last(t).RequestContext.Authorizer)
}

func TestResponses(t *testing.T) {
	const json200 = "application/json"
	for name, c := range map[string]struct {
		answer      string
		status      int
		contentType string
		body        string
	}{
		"inferred object":     {`{"ok": true}`, 200, json200, `{"ok": true}`},
		"inferred list":       {`[1,2]`, 200, json200, `[1,2]`},
		"inferred string":     {`"Hello \"you\""`, 200, json200, `Hello "you"`},
		"inferred null":       {`null`, 200, json200, `null`},
		"body without status": {`{"body":"x"}`, 200, json200, `{"body":"x"}`},
		"full": {`{"statusCode":201,"headers":{"content-type":"application/problem+json"},"body":"{}"}`,
			201, "application/problem+json", `{}`},
		"no content type": {`{"statusCode":200,"body":"hi"}`, 200, "text/plain;charset=UTF-8", "hi"},
		"no body":         {`{"statusCode":202}`, 202, "", ""},
		"null members": {`{"statusCode":202,"headers":null,"multiValueHeaders":null,"cookies":null,"body":null,` +
			`"isBase64Encoded":null}`, 202, "", ""},
		"status as text": {`{"statusCode":"404","body":"gone"}`, 404, "text/plain;charset=UTF-8", "gone"},
		"base64": {`{"statusCode":200,"headers":{"Content-Type":"image/gif"},"body":"AP8A",` +
			`"isBase64Encoded":true}`, 200, "image/gif", "\x00\xff\x00"},
		"204":           {`{"statusCode":204}`, 204, "", ""},
		"304 with body": {`{"statusCode":304,"body":"x"}`, 304, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			fn := &recorder{answer: c.answer}
			server := serve(t, map[string]gateway.Invoke{"GET /": fn.invoke}, nil)
			got := send(t, "GET", server.URL+"/", "", nil)
			require.Equal(t, c.status, got.StatusCode)
			require.Equal(t, c.contentType, got.Header.Get("Content-Type"))
			require.Equal(t, c.body, got.body)
			require.NotEmpty(t, got.Header.Get("Apigw-Requestid"))
		})
	}
}

func TestResponseHeaders(t *testing.T) {
	fn := &recorder{
		answer: `{"statusCode":200,"headers":{"retry-after":3,"X-Flag":true,"X-None":null,"X-Big":100000000,
		"content-length":"999","Connection":"close","Set-Cookie":"z=0"},
		"multiValueHeaders":{"X-Multi":["a","b"]},"cookies":["a=1; HttpOnly","b=2"],"body":"four"}`}
	server := serve(t, map[string]gateway.Invoke{"GET /": fn.invoke}, nil)
	got := send(t, "GET", server.URL+"/", "", nil)
	require.Equal(t, "four", got.body)
	require.Equal(t, int64(4), got.ContentLength)
	require.False(t, got.Close)
	require.Equal(t, "3", got.Header.Get("Retry-After"))
	require.Equal(t, "true", got.Header.Get("X-Flag"))
	require.Equal(t, "100000000", got.Header.Get("X-Big"))
	require.NotContains(t, got.Header, "X-None")
	require.NotContains(t, got.Header, "X-Multi", "payload format 2.0 has no multi-value headers")
	require.Equal(t, []string{"z=0", "a=1; HttpOnly", "b=2"}, got.Header.Values("Set-Cookie"))
}

func TestTimeoutLeavesTheFunctionRunning(t *testing.T) {
	goOn, ended := make(chan struct{}), make(chan error, 1)
	reported := make(chan error, 1)
	server := serve(t, map[string]gateway.Invoke{"GET /": func(ctx context.Context, _ []byte) ([]byte, error) {
		<-goOn
		ended <- ctx.Err()
		return []byte(`{}`), nil
	}}, &gateway.Options{Timeout: 20 * time.Millisecond, Report: func(_ string, err error) { reported <- err }})
	got := send(t, "GET", server.URL+"/", "", nil)
	require.Equal(t, 503, got.StatusCode)
	require.JSONEq(t, `{"message":"Service Unavailable"}`, got.body)
	require.ErrorIs(t, <-reported, context.DeadlineExceeded)
	close(goOn)
	require.NoError(t, <-ended, "its context has not ended")
}

func TestALBEvent(t *testing.T) {
	for _, multi := range []bool{false, true} {
		fn := &recorder{answer: `{"statusCode":200,"headers":{"X-A":"1"},"multiValueHeaders":{"X-A":["1","2"]}}`}
		server := serve(t, map[string]gateway.Invoke{"$default": fn.invoke},
			&gateway.Options{Flavour: gateway.ALB, MultiValueHeaders: multi})
		got := send(t, "POST", server.URL+"/a%20b?x=%2C&x=2", "{}", func(r *http.Request) {
			r.Header["X-Tag"] = []string{"web", "eu"}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Content-Encoding", "br")
		})
		var e events.ALBTargetGroupRequest
		require.NoError(t, json.Unmarshal(fn.events[0], &e))
		require.Equal(t, []any{"/a%20b", "POST", "e30=", true}, []any{e.Path, e.HTTPMethod, e.Body, e.IsBase64Encoded})
		if multi {
			require.Nil(t, e.Headers)
			require.Equal(t, []string{"web", "eu"}, e.MultiValueHeaders["x-tag"])
			require.Equal(t, []string{"%2C", "2"}, e.MultiValueQueryStringParameters["x"])
			require.Equal(t, []string{"1", "2"}, got.Header.Values("X-A"))
		} else {
			require.Nil(t, e.MultiValueHeaders)
			require.Equal(t, "eu", e.Headers["x-tag"])
			require.Equal(t, "2", e.QueryStringParameters["x"])
			require.Equal(t, []string{"1"}, got.Header.Values("X-A"))
		}
	}
}

func TestREST(t *testing.T) {
	issuer := gateway.NewIssuer()
	token, err := issuer.Token("a", nil, time.Hour)
	require.NoError(t, err)
	fn := &recorder{answer: `{"statusCode":201,"multiValueHeaders":{"X-A":["1","2"]},"body":"{}"}`}
	server := serve(t, map[string]gateway.Invoke{"POST /payments/{id}": fn.invoke},
		&gateway.Options{Flavour: gateway.RESTAPI, Authorize: gateway.Tokens(issuer.Claims)})
	got := send(t, "POST", server.URL+"/prod/payments/p%201?x=1&x=%2C", "{}", func(r *http.Request) {
		r.Header.Set("Authorization", token)
		r.Header["X-Tag"] = []string{"web", "eu"}
	})
	require.Equal(t, 201, got.StatusCode)
	require.Equal(t, []string{"1", "2"}, got.Header.Values("X-A"))
	var e events.APIGatewayProxyRequest
	require.NoError(t, json.Unmarshal(fn.events[0], &e))
	require.Equal(t, []string{"/payments/{id}", "/payments/p%201", "/prod/payments/p%201", "prod", "p 1"},
		[]string{e.Resource, e.Path, e.RequestContext.Path, e.RequestContext.Stage, e.PathParameters["id"]})
	require.Equal(t, []string{"web", "eu"}, e.MultiValueHeaders["X-Tag"])
	require.Equal(t, "eu", e.Headers["X-Tag"])
	require.Equal(t, []string{"1", ","}, e.MultiValueQueryStringParameters["x"])
	require.Equal(t, "a", e.RequestContext.Authorizer["claims"].(map[string]any)["sub"])

	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/payments/1": {403, "Missing Authentication Token"}, "/prod/x": {403, "Missing Authentication Token"},
		"/prod/payments/1": {401, "Unauthorized"},
	} {
		got := send(t, "POST", server.URL+path, "", nil)
		require.Equal(t, want.status, got.StatusCode)
		require.JSONEq(t, `{"message":"`+want.text+`"}`, got.body)
	}
}
