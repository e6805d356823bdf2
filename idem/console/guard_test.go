package console_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/testenv/story"
)

var anyone = func(*http.Request) (string, error) { return "alice", nil }

func TestEveryAnswerHasTheHeadersThatProtectIt(t *testing.T) {
	r := newRig(t, console.Options{})
	id := r.end(refund.Key("acme", "r-1"), nil, errCut)
	wrongHost := request(http.MethodGet, "/ops/", nil)
	wrongHost.Host = "evil.example"
	for name, a := range map[string]answer{
		"overview": r.get("/ops/"), "list": r.get("/ops/list"), "record": r.get(record(id)),
		"form": r.get(act(id, "failed")), "no page": r.get("/ops/none"), "style": r.get("/ops/style.css"),
		"script": r.get("/ops/live.js"), "refused": r.post("/ops/act", nil), "wrong host": r.do(wrongHost),
	} {
		t.Run(name, func(t *testing.T) {
			csp := a.Header.Get("Content-Security-Policy")
			require.True(t, strings.HasPrefix(csp, "default-src 'none'; "), csp)
			require.Contains(t, csp, "frame-ancestors 'none'")
			require.NotContains(t, csp, "unsafe")
			require.Equal(t, "DENY", a.Header.Get("X-Frame-Options"))
			require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
			require.Equal(t, "same-origin", a.Header.Get("Referrer-Policy"))
			require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
			require.NotContains(t, a.text, "<style")
			require.NotContains(t, a.text, " style=")
			require.NotContains(t, a.text, "://", "nothing is loaded from elsewhere, and nothing is linked")
		})
	}
}

func TestTheHostMustBeOneOfTheConsole(t *testing.T) {
	overLoopback := func(req *http.Request) { req.RemoteAddr = "127.0.0.1:40000" }
	fromAfar := func(req *http.Request) {
		req.RemoteAddr = "10.1.2.3:40000"
		*req = *req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey,
			&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 8080}))
	}
	for _, tt := range []struct {
		name, host string
		hosts      []string
		from       func(*http.Request)
		want       int
	}{
		{"loopback address", "127.0.0.1:8080", nil, overLoopback, 200},
		{"another one", "127.0.0.2", nil, overLoopback, 200},
		{"version 6", "[::1]:8080", nil, overLoopback, 200},
		{"localhost", "localhost:8080", nil, overLoopback, 200},
		{"in capitals", "LOCALHOST", nil, overLoopback, 200},
		{"rebound name", "evil.example:8080", nil, overLoopback, 421},
		{"name that looks like it", "localhost.evil.example", nil, overLoopback, 421},
		{"another address", "10.0.0.1:8080", nil, overLoopback, 421},
		{"no name", "", nil, overLoopback, 421},
		{"proxy's name", "ops.example.com", []string{"ops.example.com"}, overLoopback, 200},
		{"not the proxy's", "evil.example", []string{"ops.example.com"}, overLoopback, 421},
		{"from afar", "ops.internal", nil, fromAfar, 200},
		{"from afar, named", "ops.internal", []string{"ops.internal"}, fromAfar, 200},
		{"from afar, another name", "evil.example", []string{"ops.internal"}, fromAfar, 421},
		{"from afar, a loopback name", "localhost", []string{"ops.internal"}, fromAfar, 421},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, console.Options{Who: anyone, Hosts: tt.hosts})
			req := request(http.MethodGet, "/ops/", nil)
			req.Host = tt.host
			tt.from(req)
			require.Equal(t, tt.want, r.do(req).StatusCode)
		})
	}
}

// forged is a request with the form, which forge changes before it is sent.
func (r *rig) forged(form url.Values, forge func(req *http.Request, f url.Values)) answer {
	f, req := maps.Clone(form), request(http.MethodPost, "/ops/act", nil)
	forge(req, f)
	req.Body = io.NopCloser(strings.NewReader(f.Encode()))
	return r.do(req)
}

func TestAForgedFormIsRefused(t *testing.T) {
	who := "alice"
	r, id := newQuestion(t, console.Options{Who: func(*http.Request) (string, error) { return who, nil }})
	r.Unknown(story.Key("refund/acme/r-2"))
	other := story.Key("refund/acme/r-2")
	form := r.form(id, "released")
	header := func(name, value string) func(*http.Request, url.Values) {
		return func(req *http.Request, _ url.Values) {
			req.Header.Del("Sec-Fetch-Site") // as an old browser
			req.Header.Set(name, value)
		}
	}
	for name, forge := range map[string]func(*http.Request, url.Values){
		"no token":            func(_ *http.Request, f url.Values) { f.Del("token") },
		"another token":       func(_ *http.Request, f url.Values) { f.Set("token", "AAAA") },
		"another record":      func(_ *http.Request, f url.Values) { f.Set("id", other.ID()) },
		"another decision":    func(_ *http.Request, f url.Values) { f.Set("to", "failed") },
		"a view of one's own": func(_ *http.Request, f url.Values) { f.Set("seen", r.Record(other).Write) },
		"nothing was seen":    func(_ *http.Request, f url.Values) { f.Set("seen", "") },
		"another time":        func(_ *http.Request, f url.Values) { f.Set("issued", "9999999999") },
		"another operator":    func(*http.Request, url.Values) { who = "mallory" },
		"in the address": func(req *http.Request, f url.Values) {
			req.URL.RawQuery = f.Encode()
			clear(f)
		},
		"another site":              header("Sec-Fetch-Site", "cross-site"),
		"another port":              header("Sec-Fetch-Site", "same-site"),
		"another site, old browser": header("Origin", "https://evil.example"),
		"a sandboxed frame":         header("Origin", "null"),
		"another port, old browser": header("Origin", "http://127.0.0.1:9999"),
	} {
		require.Equal(t, http.StatusForbidden, r.forged(form, forge).StatusCode, name)
		who = "alice"
	}
	require.Zero(t, r.changes(id)+r.changes(other.ID()))
	r.posts(form, http.StatusSeeOther, "") // it was good otherwise
}

// nginx passes a request on without a header that says so, with a Host of its own, and before
// 1.29.7 with HTTP/1.0: https://nginx.org/en/docs/http/ngx_http_proxy_module.html.
func TestThisMachineRefusesOthersAndAProxyThatShowsItself(t *testing.T) {
	r, id := newQuestion(t, console.Options{Hosts: []string{"ops.example.com"}})
	form := r.form(id, "released")
	refused := map[string]func(*http.Request){
		"from afar":    func(req *http.Request) { req.Host, req.RemoteAddr = "ops.example.com", "10.1.2.3:40000" },
		"old protocol": func(req *http.Request) { req.Proto, req.ProtoMinor = "HTTP/1.0", 0 },
	}
	for _, header := range []string{"Origin: https://ops.example.com", "Origin: null",
		"Referer: https://ops.example.com/ops/", "Referer: https://%", "X-Forwarded-For: 10.1.2.3",
		"Forwarded: for=10.1.2.3", "Via: 1.1 proxy", "X-Forwarded-Host: ops.example.com", "X-Forwarded-Proto: https",
		"X-Real-IP: 10.1.2.3"} {
		name, value, _ := strings.Cut(header, ": ")
		refused[header] = func(req *http.Request) { req.Header.Set(name, value) }
	}
	for name, change := range refused {
		for _, req := range []*http.Request{request(http.MethodPost, "/ops/act", form),
			request(http.MethodGet, "/ops/", nil)} {
			change(req)
			require.Equal(t, http.StatusForbidden, r.do(req).StatusCode, name)
		}
	}
	require.Zero(t, r.changes(id))
	for _, page := range []string{"http://localhost:8080/ops/", "http://[::1]:8080/ops/", "http://127.0.0.1/ops/",
		"https://tickets.example.com/"} {
		req := request(http.MethodGet, "/ops/", nil)
		req.Header.Set("Referer", page)
		if strings.HasPrefix(page, "https:") { // a link to this machine
			req.Header.Set("Sec-Fetch-Site", "cross-site")
		}
		require.Equal(t, http.StatusOK, r.do(req).StatusCode, page)
	}
	r.posts(form, http.StatusSeeOther, "")
}

func TestARequestWithoutAnOperatorIsRefused(t *testing.T) {
	for name, who := range map[string]func(*http.Request) (string, error){
		"an error": func(*http.Request) (string, error) { return "", errors.New("the session of bob@example.com is over") },
		"no name":  func(*http.Request) (string, error) { return "", nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, console.Options{Who: who})
			for _, path := range []string{"/ops/", "/ops/list", "/ops/live/", "/ops/style.css"} {
				a := r.get(path)
				require.Equal(t, http.StatusForbidden, a.StatusCode)
				require.NotContains(t, a.text, "bob", "the reason is for the log")
			}
		})
	}
}

func TestUnknownPathsAndMethodsAreAnswered(t *testing.T) {
	r := newRig(t, console.Options{})
	for _, path := range []string{"/", "/ops/none", "/ops/assets/layout.html", "/ops/../etc/passwd",
		"/ops/live/none", "/list"} {
		require.GreaterOrEqual(t, r.get(path).StatusCode, 300, path)
	}
	require.Equal(t, "/ops/", r.get("/ops").Header.Get("Location"))
	require.Equal(t, http.StatusNotFound, r.do(request(http.MethodDelete, "/ops/record", nil)).StatusCode)
	for _, query := range []string{"record", "record?id=x", "list?page=x", "list?state=x", "list?older=x"} {
		require.Equal(t, http.StatusBadRequest, r.get("/ops/"+query).StatusCode, query)
	}
	absent := r.get(record(refund.Key("acme", "none").ID()))
	require.Equal(t, http.StatusNotFound, absent.StatusCode)
	require.Contains(t, absent.text, "There is no record")
}

func TestMistakesInTheOptionsAreReportedAtOnce(t *testing.T) {
	for name, o := range map[string]console.Options{
		"Prefix":  {Prefix: "ops"},
		"Prefix ": {Prefix: "/ops/"},
		"prefix":  {Prefix: "/{ops}"},
		"FormKey": {FormKey: []byte("short")},
		"Poll":    {Poll: -1},
		"Hosts":   {Hosts: []string{"https://ops.example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			o.Who = anyone
			_, err := console.New(newRig(t, console.Options{}).r, &o)
			require.ErrorAs(t, err, new(*idem.ConfigError))
		})
	}
	r := newRig(t, console.Options{}).r
	// A request from a proxy such as nginx since 1.29.7 is like one from this machine: the service says who asks.
	for _, o := range []*console.Options{nil, {}, {Hosts: []string{"ops.example.com"}}} {
		_, err := console.New(r, o)
		require.ErrorAs(t, err, new(*idem.ConfigError))
		require.ErrorContains(t, err, "console.ThisMachine")
	}
	_, err := console.New(nil, nil)
	require.ErrorContains(t, err, "reconcile.New")
}

func TestFormsOfOneProcessAreTakenByAnotherWithTheSameKey(t *testing.T) {
	key := []byte(strings.Repeat("k", 32))
	r, id := newQuestion(t, console.Options{FormKey: key})
	form := r.form(id, "released")
	r.mount(r.r, console.Options{})
	require.Equal(t, http.StatusForbidden, r.post("/ops/act", form).StatusCode, "one with another key")
	r.mount(r.r, console.Options{FormKey: key})
	r.posts(form, http.StatusSeeOther, "")
}
