package idemlambda

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/stretchr/testify/require"
)

// Handmade events may have a template and a path without parameters: two
// resources stay two requests.
func TestResourcesWithoutParameters(t *testing.T) {
	for name, to := range map[string]func(e map[string]any, id string){
		"apigw-v1-none": func(e map[string]any, id string) {
			e["resource"], e["path"] = "/payments/{id}/refunds", "/payments/"+id+"/refunds"
		},
		"apigw-v2-none": func(e map[string]any, id string) {
			e["routeKey"], e["rawPath"] = "POST /payments/{id}/refunds", "/payments/"+id+"/refunds"
		},
	} {
		n := 0
		h := lambda.NewHandler(functionOf(t, name)(newEngine(t, memory()), idemhttp.Routes{"POST /payments/{id}/refunds": charge}, idemhttp.SingleTenant, nil, &n))
		at := func(id string) answerTo {
			return ask(t, t.Context(), h, changed(t, name, func(e map[string]any) {
				delete(e, "pathParameters")
				to(e, id)
			}))
		}
		require.Equal(t, 201, at("7").StatusCode, name)
		require.Equal(t, 422, at("8").StatusCode, name)
		again := at("7")
		require.Equal(t, "true", again.header(idemhttp.HeaderReplayed))
		require.Equal(t, 1, n)
	}
}

// Bytes that a net/http handler has recorded come through every gateway: an event's
// JSON cannot hold them as text.
func TestBytesOfAnotherGateway(t *testing.T) {
	picture := "\x89PNG\r\n\x1a\n\xff\x00"
	for _, name := range plainSamples {
		engine := newEngine(t, memory())
		routes := idemhttp.AnyRoute(charge)
		contract, err := idemhttp.New(engine, routes, idemhttp.SingleTenant, nil)
		require.NoError(t, err)
		n := 0
		h := lambda.NewHandler(functionOf(t, name)(engine, routes, idemhttp.SingleTenant, nil, &n))
		var e struct {
			Body string
		}
		raw := changed(t, name, func(event map[string]any) {
			e.Body, _ = event["body"].(string)
			if at, ok := event["requestContext"].(map[string]any); ok {
				delete(at, "stage") // net/http has none
			}
			for _, field := range []string{"queryStringParameters", "multiValueQueryStringParameters", "rawQueryString", "pathParameters"} {
				delete(event, field)
			}
			for _, field := range []string{"path", "rawPath"} {
				if _, ok := event[field]; ok {
					event[field] = "/payments"
				}
			}
			if _, ok := event["resource"]; ok {
				event["resource"] = "/payments"
			}
			if _, ok := event["routeKey"]; ok {
				event["routeKey"] = "POST /payments"
			}
			for _, field := range []string{"headers", "multiValueHeaders"} {
				if header, ok := event[field].(map[string]any); ok {
					for k := range header {
						if strings.EqualFold(k, idemhttp.DefaultKeyHeader) {
							delete(header, k)
						}
					}
					if field == "headers" {
						header["Idempotency-Key"] = "key-of-both-gateways"
					} else {
						header["Idempotency-Key"] = []string{"key-of-both-gateways"}
					}
				}
			}
		})
		r := httptest.NewRequest("POST", "/payments", strings.NewReader(e.Body))
		r.Header.Set("Idempotency-Key", "key-of-both-gateways")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		contract.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(picture))
		}), nil).ServeHTTP(w, r)
		require.Equal(t, picture, w.Body.String())

		var a struct {
			StatusCode      int
			Body            string
			IsBase64Encoded bool
		}
		out, err := h.Invoke(t.Context(), raw)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(out, &a))
		require.Equal(t, 200, a.StatusCode, "%s: %s", name, a.Body)
		require.True(t, a.IsBase64Encoded, name)
		got, err := base64.StdEncoding.DecodeString(a.Body)
		require.NoError(t, err)
		require.Equal(t, picture, string(got))
		require.Zero(t, n)
	}
}
