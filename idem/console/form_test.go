package console_test

import (
	"maps"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/console"
)

func TestAForgedFormIsRefused(t *testing.T) {
	r := newRig(t, console.Options{Who: func(req *http.Request) (string, error) { return req.Header.Get("X-Who"), nil }})
	as := func(name string, req *http.Request) *http.Request { req.Header.Set("X-Who", name); return req }
	id := r.end(refund.Key("acme", "r-1"), nil, errCut)
	other := r.end(refund.Key("acme", "r-2"), nil, errCut)
	r.lapse()
	form := formOf(r.do(as("alice", request(http.MethodGet, act(id, "released"), nil))))
	forged := map[string]func(f url.Values){
		"no token":            func(f url.Values) { f.Del("token") },
		"another token":       func(f url.Values) { f.Set("token", "AAAA") },
		"another record":      func(f url.Values) { f.Set("id", other) },
		"another decision":    func(f url.Values) { f.Set("to", "failed") },
		"a view of one's own": func(f url.Values) { f.Set("seen", r.Record(refund.Key("acme", "r-2")).Write) },
		"nothing was seen":    func(f url.Values) { f.Set("seen", "") },
		"another time":        func(f url.Values) { f.Set("issued", "9999999999") },
	}
	for name, change := range forged {
		t.Run(name, func(t *testing.T) {
			f := maps.Clone(form)
			change(f)
			require.Equal(t, http.StatusForbidden, r.do(as("alice", request(http.MethodPost, "/ops/act", f))).StatusCode)
		})
	}
	t.Run("another operator", func(t *testing.T) {
		require.Equal(t, http.StatusForbidden, r.do(as("mallory", request(http.MethodPost, "/ops/act", form))).StatusCode)
	})
	t.Run("in the address", func(t *testing.T) {
		require.Equal(t, http.StatusForbidden,
			r.do(as("alice", request(http.MethodPost, "/ops/act?"+form.Encode(), nil))).StatusCode)
	})
	require.Zero(t, r.changes(id)+r.changes(other))
	require.Equal(t, http.StatusSeeOther, r.do(as("alice", request(http.MethodPost, "/ops/act", form))).StatusCode,
		"it was good otherwise")
}
