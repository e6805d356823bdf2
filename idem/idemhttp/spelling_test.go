package idemhttp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// ServeMux decodes each segment of a path, other routers the whole of it or nothing. A path with which some of them
// reach an operation that must not run twice is never one that may.
func TestPathsInAnotherSpelling(t *testing.T) {
	once := func(name string) idem.Operation { return idem.Operation{Name: name, Repeat: idem.NotRepeatable} }
	c := contractFor(t, newEngine(t, memory()), Routes{
		"POST /refunds":        once("refund"),
		"POST /{hook}":         {Name: "hook", Repeat: idem.Repeatable},
		"POST /payments/{id}":  once("charge"),
		"POST /{app}/{hook}":   Unprotected,
		"POST /files/{$}":      once("upload"),
		"POST /files/{id}/end": once("end"),
	}, SingleTenant)
	for path, want := range map[string]string{
		"/refunds": "refund", "/other": "hook", "/%6Fther": "hook", "/refund%73": "refund", "/./refunds": "refund",
		"/refunds/": "", "//refunds": "", "/x%2F..%2Frefunds": "refund",
		"/payments/7": "charge", "/payments/a%2Fb": "charge", "/pay%6Dents/7": "charge", "/pay%6Dents/a%2Fb": "charge",
		"/a/../payments/7": "", "/a/b": "-", "/a/b%zz": "-", "/payments/b%zz": "charge", "/a%2Fb/c": "-",
		"/files/": "upload", "/files//": "", "/files/a%2Fb/end": "end", "/files/.x/end": "end",
	} {
		d := c.declaration(&Request{Method: "POST", Path: path})
		switch want {
		case "":
			require.Nil(t, d, path)
		case "-":
			require.True(t, d.passes(), path)
		default:
			require.NotNil(t, d, path)
			require.Equal(t, want, d.op.Name, path)
		}
	}

	runs := 0
	mux := http.NewServeMux()
	for _, pattern := range []string{"POST /refunds", "POST /payments/{id}"} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { runs++; w.WriteHeader(500) })
	}
	h := c.Middleware(mux, nil)
	for _, path := range []string{"/refunds", "/refund%73", "/payments/7", "/pay%6Dents/7", "/pay%6Dents/a%2Fb"} {
		runs = 0
		for range 2 {
			req := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
			req.Header.Set("Idempotency-Key", testKey+strings.NewReplacer("/", "-", "%", "-").Replace(path))
			h.ServeHTTP(httptest.NewRecorder(), req)
		}
		require.LessOrEqual(t, runs, 1, path)
	}
}
