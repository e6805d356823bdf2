package console_test

import (
	"context"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/protocol"
)

// paid is a rig with a question of an HTTP route, whose handler did this, and a call of it.
func paid(t *testing.T, encode func(*idem.Record, *idemhttp.Response) (protocol.Encoded, error),
	did ...func(*rig, context.Context)) (r *rig, id string, call func() *httptest.ResponseRecorder) {
	t.Helper()
	r = newRig(t, console.Options{Encode: encode})
	contract, err := idemhttp.New(r.Engine, idemhttp.Routes{"POST /refunds": refund}, idemhttp.SingleTenant, nil)
	require.NoError(t, err)
	served := contract.Middleware(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for _, do := range did {
			do(r, req.Context())
		}
		w.WriteHeader(http.StatusBadGateway)
	}), nil)
	call = func() *httptest.ResponseRecorder {
		req := httptest.NewRequest(http.MethodPost, "/refunds", strings.NewReader("{}"))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", "refund-0000000000001")
		w := httptest.NewRecorder()
		served.ServeHTTP(w, req)
		return w
	}
	call()
	id = r.Store.Records()[0].ID
	r.lapse()
	return r, id, call
}

func TestAnHTTPRequestIsCompletedWithItsResponse(t *testing.T) {
	r, id, call := paid(t, nil)
	require.Equal(t, idem.Unknown, r.state(id))
	require.Contains(t, r.get(record(id)).text, "not_repeatable, over HTTP")
	require.Contains(t, r.get(record(id)).text, "If you give its result: The recorded result. The handler does not run. "+
		"If not: HTTP 409 outcome_unavailable")
	page := r.get(act(id, "completed")).text
	require.NotContains(t, page, "mistake", "nothing was typed yet")
	require.Contains(t, page, "they get an error, HTTP 409 outcome_unavailable")
	require.NotContains(t, page, "a message is")
	form := r.form(id, "completed", url.Values{"known": {"yes"}, "status": {"201"}, "look": {"1"},
		"headers": {"content-type: application/json\r\nLink: </a>\r\nLink: </b>\r\nSet-Cookie: session=1"},
		"result":  {"{\"number\":\r\n\"re_1\"}"}})
	look := html.UnescapeString(r.post("/ops/act", form).text)
	require.Contains(t, look, "HTTP 201 Created\nContent-Type: application/json\nLink: </a>\nLink: </b>\n")
	require.Contains(t, look, "Set-Cookie is not recorded")
	require.NotContains(t, look, "The response has", "no doubt")
	doubtful := maps.Clone(form)
	doubtful.Del("headers")
	require.Contains(t, r.post("/ops/act", doubtful).text, "The response has a body and no Content-Type")
	require.Zero(t, r.changes(id))
	form.Del("look")
	r.posts(form, http.StatusSeeOther, "")
	w := call()
	require.Equal(t, http.StatusCreated, w.Code)
	require.Equal(t, "{\"number\":\n\"re_1\"}", w.Body.String())
	require.Equal(t, []string{"</a>", "</b>"}, w.Header().Values("Link"))
	require.Contains(t, r.get(record(id)+"&show=result").text, "HTTP 201 Created\n")
}

const asJSON = "Content-Type: application/json"

func TestAnHTTPRequestWithoutItsResponse(t *testing.T) {
	r, id, call := paid(t, nil)
	r.posts(r.form(id, "completed"), http.StatusSeeOther, "")
	require.Equal(t, http.StatusConflict, call().Code)
}

func TestAServiceEncodesTheResponsesItself(t *testing.T) {
	r, id, call := paid(t, func(_ *idem.Record, res *idemhttp.Response) (protocol.Encoded, error) {
		res.Body = nil // a redaction
		return idemhttp.Encode(res)
	})
	r.posts(r.form(id, "completed", url.Values{"known": {"yes"}, "status": {"201"}, "result": {"4242"}}),
		http.StatusSeeOther, "")
	w := call()
	require.Equal(t, http.StatusCreated, w.Code)
	require.Empty(t, w.Body.String())
}
