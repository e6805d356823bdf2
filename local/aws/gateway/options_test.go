package gateway_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

func TestBadOptions(t *testing.T) {
	invoke := func(context.Context, []byte) ([]byte, error) { return nil, nil }
	for _, c := range []struct {
		o     gateway.Options
		route string
		want  string
	}{
		{gateway.Options{Flavour: gateway.RESTAPI, Stage: "$default"}, "GET /", "cannot be a stage"},
		{gateway.Options{Flavour: gateway.HTTPAPI, Stage: "a/b"}, "GET /", "cannot be a stage"},
		{gateway.Options{Flavour: 9}, "GET /", "none of HTTPAPI"},
		{gateway.Options{Flavour: gateway.FunctionURL}, "GET /", `give it the route "$default" alone`},
		{gateway.Options{Flavour: gateway.RESTAPI}, "$default", "a REST API has no route $default"},
		{gateway.Options{Timeout: -1}, "GET /", "Options.Timeout"},
	} {
		_, err := gateway.New(map[string]gateway.Invoke{c.route: invoke}, &c.o)
		require.ErrorContains(t, err, c.want)
	}
}

// A stage stands before the path; only what lies under it is the API's.
func TestStages(t *testing.T) {
	for _, c := range []struct {
		o          gateway.Options
		path, want string // the path in the event; empty: no such route
	}{
		{gateway.Options{}, "/payments", "/payments"},
		{gateway.Options{Stage: "$default"}, "/payments", "/payments"},
		{gateway.Options{Stage: "test"}, "/test/payments", "/test/payments"},
		{gateway.Options{Stage: "test"}, "/payments", ""},
		{gateway.Options{Stage: "test"}, "/testpayments", ""},
		{gateway.Options{Stage: "test"}, "/test", ""},
		{gateway.Options{Flavour: gateway.RESTAPI}, "/prod/payments", "/prod/payments"},
		{gateway.Options{Flavour: gateway.RESTAPI, Stage: "v1"}, "/v1/payments", "/v1/payments"},
		{gateway.Options{Flavour: gateway.RESTAPI, Stage: "v1"}, "/prod/payments", ""},
	} {
		fn := &recorder{answer: `{"statusCode":200}`}
		server := serve(t, map[string]gateway.Invoke{"GET /payments": fn.invoke}, &c.o)
		got := send(t, "GET", server.URL+c.path, "", nil)
		if c.want == "" {
			require.GreaterOrEqual(t, got.StatusCode, 403, "%+v", c)
			require.Zero(t, fn.calls())
			continue
		}
		require.Equal(t, 200, got.StatusCode, "%+v", c)
		var e struct {
			RawPath        string
			RequestContext struct{ Stage, Path string }
		}
		require.NoError(t, json.Unmarshal(fn.events[0], &e))
		seen := e.RawPath
		if seen == "" {
			seen = e.RequestContext.Path
		}
		require.Equal(t, c.want, seen)
		if c.o.Stage != "" {
			require.Equal(t, c.o.Stage, e.RequestContext.Stage)
		}
	}
}

// The API's binary types decide by the request's Content-Type on the way in, and by
// the client's first Accept on the way out.
func TestBinaryMediaTypes(t *testing.T) {
	const encoded, raw = "AP8A", "\x00\xff\x00"
	for name, c := range map[string]struct {
		types        []string
		sent, accept string
		in           string // what the function is given
		inBase64     bool
		out          string // what the client gets
	}{
		"none":          {nil, "image/png", "image/png", "\ufffd", false, encoded},
		"both":          {[]string{"image/png"}, "image/png", "image/png", "/w==", true, raw},
		"in only":       {[]string{"image/png"}, "Image/PNG; q=1", "text/plain, image/png", "/w==", true, encoded},
		"out only":      {[]string{"image/png"}, "text/plain", "image/png;q=1, text/plain", "\ufffd", false, raw},
		"a kind":        {[]string{"image/*"}, "image/webp", "image/gif", "/w==", true, raw},
		"everything":    {[]string{"*/*"}, "", "", "/w==", true, raw},
		"another kind":  {[]string{"image/*"}, "imagery/x", "imagery/x", "\ufffd", false, encoded},
		"accepts stars": {[]string{"image/png"}, "image/png", "*/*", "/w==", true, encoded},
	} {
		t.Run(name, func(t *testing.T) {
			fn := &recorder{answer: `{"statusCode":200,"headers":{"Content-Type":"image/png"},"isBase64Encoded":true,"body":"` +
				encoded + `"}`}
			server := serve(t, map[string]gateway.Invoke{"POST /": fn.invoke},
				&gateway.Options{Flavour: gateway.RESTAPI, BinaryMediaTypes: c.types})
			got := send(t, "POST", server.URL+"/prod/", "\xff", func(r *http.Request) {
				r.Header.Set("Content-Type", c.sent)
				r.Header.Set("Accept", c.accept)
			})
			require.Equal(t, c.out, got.body)
			var e events.APIGatewayProxyRequest
			require.NoError(t, json.Unmarshal(fn.events[0], &e))
			require.Equal(t, c.in, e.Body)
			require.Equal(t, c.inBase64, e.IsBase64Encoded)
		})
	}
}

func TestIAM(t *testing.T) {
	signer := func(r gateway.Request) (gateway.Caller, error) {
		name := r.Header.Get("Authorization")
		if name == "" {
			return gateway.Caller{}, gateway.Forbidden("it is not signed")
		}
		return gateway.Caller{Signer: &gateway.Principal{AccountID: "111122223333", UserID: "AROA:" + name,
			ARN: "arn:aws:iam::111122223333:role/" + name}}, nil
	}
	for flavour, c := range map[gateway.Flavour]struct{ route, path, refusal string }{
		gateway.HTTPAPI:     {"GET /x", "/x", `{"message":"Forbidden"}`},
		gateway.RESTAPI:     {"GET /x", "/prod/x", `{"message":"Missing Authentication Token"}`},
		gateway.FunctionURL: {"$default", "/x", `{"Message":"Forbidden"}`},
	} {
		fn := &recorder{answer: `{"statusCode":200}`}
		server := serve(t, map[string]gateway.Invoke{c.route: fn.invoke},
			&gateway.Options{Flavour: flavour, Authorize: signer})
		got := send(t, "GET", server.URL+c.path, "", nil)
		require.Equal(t, 403, got.StatusCode)
		require.Equal(t, c.refusal, got.body)
		require.Zero(t, fn.calls())
		send(t, "GET", server.URL+c.path, "", func(r *http.Request) { r.Header.Set("Authorization", "ada") })
		var e struct {
			RequestContext struct {
				AccountID  string
				Authorizer *struct {
					IAM *events.APIGatewayV2HTTPRequestContextAuthorizerIAMDescription
				}
				Identity events.APIGatewayRequestIdentity
			}
		}
		require.NoError(t, json.Unmarshal(fn.events[0], &e))
		require.Equal(t, "000000000000", e.RequestContext.AccountID,
			"the function's, also behind a function URL that is not public")
		id := e.RequestContext.Identity
		account, user, arn := id.AccountID, id.User, id.UserArn
		if flavour != gateway.RESTAPI {
			iam := e.RequestContext.Authorizer.IAM
			account, user, arn = iam.AccountID, iam.UserID, iam.UserARN
		}
		require.Equal(t, []string{"111122223333", "AROA:ada", "arn:aws:iam::111122223333:role/ada"},
			[]string{account, user, arn})
	}
}

func TestIssuer(t *testing.T) {
	issuer, other := gateway.NewIssuer(), gateway.NewIssuer()
	token := func(i *gateway.Issuer, lifetime time.Duration, claims map[string]any) string {
		s, err := i.Token("ada", claims, lifetime)
		require.NoError(t, err)
		return s
	}
	good := token(issuer, time.Hour, map[string]any{
		"tenant": "blue", "level": int64(9007199254740993), "admin": true, "groups": []string{"a", "b"},
		"sub": "eve", "iss": "eve",
	})
	parts := strings.Split(good, ".")
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + parts[1] + "."
	foreign := strings.Split(token(other, time.Hour, nil), ".")

	fn := &recorder{answer: `{}`}
	server := serve(t, map[string]gateway.Invoke{"GET /": fn.invoke},
		&gateway.Options{Authorize: gateway.Tokens(issuer.Claims)})
	for what, header := range map[string]string{
		"no token":        "",
		"no JWT":          "Bearer x",
		"unsigned":        "Bearer " + unsigned,
		"another key":     "Bearer " + strings.Join(foreign, "."),
		"another payload": "Bearer " + parts[0] + "." + foreign[1] + "." + parts[2],
		"expired":         "Bearer " + token(issuer, -time.Minute, nil),
		"not valid yet":   "Bearer " + token(issuer, time.Hour, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}),
		"another scheme":  "Basic " + good,
	} {
		got := send(t, "GET", server.URL+"/", "", func(r *http.Request) { r.Header.Set("Authorization", header) })
		require.Equal(t, 401, got.StatusCode, what)
		require.Equal(t, `{"message":"Unauthorized"}`, got.body, what)
	}
	require.Zero(t, fn.calls())

	for _, header := range []string{good, "Bearer " + good, "bearer " + good} {
		got := send(t, "GET", server.URL+"/", "", func(r *http.Request) { r.Header.Set("Authorization", header) })
		require.Equal(t, 200, got.StatusCode)
		claims := fn.last(t).RequestContext.Authorizer.JWT.Claims
		require.Regexp(t, `^\d+$`, claims["exp"])
		require.Regexp(t, `^\d+$`, claims["iat"])
		delete(claims, "exp")
		delete(claims, "iat")
		require.Equal(t, map[string]string{
			"iss": "https://issuer.local", "sub": "ada", "tenant": "blue", "level": "9007199254740993", "admin": "true",
			"groups": "[a b]",
		}, claims)
	}

	_, err := issuer.Token("ada", map[string]any{"f": func() {}}, time.Hour)
	require.ErrorContains(t, err, "sign a token")
}
