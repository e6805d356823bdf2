package console_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/testenv/story"
)

func TestAServiceEncodesTheResponsesItself(t *testing.T) {
	r := newRig(t, console.Options{Encode: func(_ *idem.Record, res *idemhttp.Response) (protocol.Encoded, error) {
		res.Body = nil // a redaction
		return idemhttp.Encode(res)
	}})
	pay := func() *idemhttp.Response { return r.Pay("payment-0000000001", "", func(context.Context) {}) }
	pay()
	r.lapse()
	id := story.Payment.Key(idem.SingleTenant, "payment-0000000001").ID()
	r.posts(r.form(id, "completed", url.Values{"known": {"yes"}, "status": {"201"}, "result": {"4242"}}),
		http.StatusSeeOther, "")
	res := pay()
	require.Equal(t, http.StatusCreated, res.Status)
	require.Empty(t, res.Body)
}
