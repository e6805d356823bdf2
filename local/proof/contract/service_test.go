package contract

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/contract"
	"github.com/idem-go/idempotency/idem/testenv/contract/contracttest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/aws/gateway"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/proof/contract/internal/script"
	"github.com/idem-go/idempotency/local/proof/faultnet"
)

// kind is a gateway in one of its modes, and the answers of its own.
type kind struct {
	name     string
	options  gateway.Options
	function string // of script's flavours
	base     string // what paths begin with
	// failed and late are its answers for a function that fails, or takes too long;
	// unsigned is the one for a request without token.
	failed, late, unsigned own
	// onlyIETF says that the gateway is another mode of one above: one profile is enough.
	onlyIETF bool
	// unshown are rows that the gateway does not show to the function.
	unshown []string
}

type own struct {
	status int
	body   string // a part of it
}

var kinds = []kind{
	{
		name: "HTTP API", options: gateway.Options{Flavour: gateway.HTTPAPI, Stage: "test"},
		function: script.HTTPAPI, base: "/test",
		failed: own{500, `{"message":"Internal Server Error"}`}, late: own{503, `{"message":"Service Unavailable"}`},
		unsigned: own{401, `{"message":"Unauthorized"}`},
	},
	{
		name: "REST API", options: gateway.Options{Flavour: gateway.RESTAPI,
			BinaryMediaTypes: []string{"image/png", "application/octet-stream"}}, function: script.RESTAPI, base: "/prod",
		failed: own{502, `{"message": "Internal server error"}`}, late: own{504, `{"message": "Endpoint request timed out"}`},
		unsigned: own{401, `{"message":"Unauthorized"}`},
		unshown:  []string{contract.NoUTF8}, // it takes JSON for text, in which such bytes are lost
	},
	{
		name: "REST API, all media types binary", options: gateway.Options{Flavour: gateway.RESTAPI,
			BinaryMediaTypes: []string{"*/*"}, Stage: "v1"}, function: script.RESTAPI, base: "/v1",
		failed: own{502, `{"message": "Internal server error"}`}, late: own{504, `{"message": "Endpoint request timed out"}`},
		unsigned: own{401, `{"message":"Unauthorized"}`},
		onlyIETF: true,
	},
	{
		name: "function URL", options: gateway.Options{Flavour: gateway.FunctionURL}, function: script.FunctionURL,
		failed: own{502, "Internal Server Error"}, late: own{502, "Internal Server Error"},
		unsigned: own{403, `{"Message":"Forbidden"}`},
	},
	{
		name: "ALB", options: gateway.Options{Flavour: gateway.ALB}, function: script.ALB,
		unshown: []string{contract.KeySentTwice}, // it passes on the last header only
		failed:  own{502, "502 Bad Gateway"}, late: own{504, "504 Gateway Time-out"},
		unsigned: own{401, "401 Authorization Required"},
	},
	{
		name: "ALB with multi-value headers", options: gateway.Options{Flavour: gateway.ALB, MultiValueHeaders: true},
		function: script.ALB,
		failed:   own{502, "502 Bad Gateway"}, late: own{504, "504 Gateway Time-out"},
		unsigned: own{401, "401 Authorization Required"},
	},
}

// of lists the processes that work on requests with a key.
func (a at) of(key string) (pids []int) {
	for _, in := range a.pool.InFlight() {
		if strings.Contains(string(in.Payload), key) {
			pids = append(pids, in.PID)
		}
	}
	return pids
}

// service is the function behind a gateway. Several pools of the same function differ in
// time-out and in the way to the table.
type service struct {
	*fixture
	kind
	profile idemhttp.Profile
	issuer  *gateway.Issuer
	client  *http.Client
	network *faultnet.Network // to the table, of apart

	calm  at // long time-out
	hasty at // short time-out: a killed process' lease ends soon
	apart at // one process, behind the network
	// impatient is calm behind a gateway that waits a moment only.
	impatient at

	// held lets one test at a time keep calm's processes waiting, so that there are always free ones.
	held sync.Mutex
}

// at is a pool and the gateway before it.
type at struct {
	url  string
	pool *runtime.Pool
}

func newService(t *testing.T, l *fixture, k kind, profile idemhttp.Profile) *service {
	t.Helper()
	s := &service{fixture: l, kind: k, profile: profile, issuer: gateway.NewIssuer(), network: faultnet.New()}
	transport := &http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{
		Transport: transport, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.calm = s.open(t, l.endpoint, runtime.Function{Timeout: time.Minute, MaxInstances: 4}, patience)
	s.hasty = s.open(t, l.endpoint, runtime.Function{Timeout: 4 * time.Second, MaxInstances: 6}, patience)
	s.apart = s.open(t, s.network.Serve(t, l.endpoint),
		runtime.Function{Timeout: time.Minute, MaxInstances: 1}, 2*time.Second)
	s.impatient = at{s.serve(t, s.calm.pool, 300*time.Millisecond), s.calm.pool}
	return s
}

// open starts a pool. Claims and outcomes get the time that is given, claims at most a quarter of the time-out.
func (s *service) open(t *testing.T, endpoint string, fn runtime.Function, claims time.Duration) at {
	t.Helper()
	fn.Path = testmain.Program(t, "./internal/function")
	fn.Env = []string{
		schema.EnvTable + "=" + s.table, schema.EnvEndpoint + "=" + endpoint, script.EnvControl + "=" + s.control.URL,
		script.EnvFlavour + "=" + s.function, fmt.Sprintf("%s=%d", script.EnvProfile, s.profile),
		script.EnvClaimBudget + "=" + claims.String(),
	}
	pool, err := runtime.Start(context.Background(), fn, nil)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return at{s.serve(t, pool, 0), pool}
}

// serve puts a gateway on a free loopback port.
func (s *service) serve(t *testing.T, pool *runtime.Pool, timeout time.Duration) string {
	t.Helper()
	o := s.options
	o.Timeout = timeout
	routes := map[string]gateway.Invoke{"$default": pool.Call}
	switch o.Flavour {
	case gateway.HTTPAPI, gateway.RESTAPI:
		// Some routes of the contract are routes of the API, others hide behind a route for everything else.
		rest := "$default"
		if o.Flavour == gateway.RESTAPI {
			rest = "ANY /{proxy+}"
		}
		routes = map[string]gateway.Invoke{"POST /payments": pool.Call,
			"POST /payments/{id}/refunds": pool.Call, rest: pool.Call}
	}
	if o.Authorize = gateway.Tokens(s.issuer.Claims); o.Flavour == gateway.FunctionURL {
		o.Authorize = s.signer
	}
	handler, err := gateway.New(routes, &o)
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// signer takes the token for a signature: a tenant is an account.
func (s *service) signer(r gateway.Request) (gateway.Caller, error) {
	claims, ok := s.issuer.Claims(r.Request)
	if !ok {
		return gateway.Caller{}, gateway.Forbidden("it is not signed")
	}
	return gateway.Caller{Signer: &gateway.Principal{AccountID: claims["tenant"], UserID: "AROA:" + claims["sub"]}}, nil
}

// request is what a client sends, and where.
type request struct {
	contract.Request
	at at
}

func newKey() string { return "key-" + rand.Text() }

// post is a request of its own key that plays p.
func (s *service) post(p *play, where at, changes ...contract.Change) request {
	r := contract.NewRequest(newKey()).With(contract.Header(script.CaseHeader, p.name))
	return request{r.With(changes...), where}
}

func (r request) with(changes ...contract.Change) request { return request{r.With(changes...), r.at} }

func (r request) through(other at) request { return request{r.Request, other} }

// playing sends a row's requests to calm.
func (s *service) playing(t *testing.T, row *contracttest.Play) contracttest.Client {
	if row.Waits() {
		s.held.Lock()
		t.Cleanup(s.held.Unlock)
	}
	p := s.play(func(int) contract.Answer { return row.Run() })
	close(p.gate)
	return func(t *testing.T, r contract.Request) contracttest.Reply {
		got := s.send(t, request{r.With(contract.Header(script.CaseHeader, p.name)), s.calm})
		got.Failed = s.failed.is(got)
		return got
	}
}

func (s *service) send(t *testing.T, r request) contracttest.Reply {
	t.Helper()
	got, err := s.do(s.build(t, t.Context(), r))
	require.NoError(t, err)
	return got
}

// is reports whether a reply is the gateway's own.
func (o own) is(got contracttest.Reply) bool {
	return got.Status == o.status && strings.Contains(got.Body, o.body)
}

// broke holds a reply to being the gateway's own.
func (s *service) broke(t *testing.T, got contracttest.Reply, want own) {
	t.Helper()
	require.True(t, want.is(got), "%d %s", got.Status, got.Body)
	contracttest.Unmarked(t, got)
}

// refused holds a reply to the answer with a code.
func (s *service) refused(t *testing.T, got contracttest.Reply, code idemhttp.Code) {
	t.Helper()
	contracttest.Refused(t, s.profile, got, code)
}

// replayed holds a reply to being the first one's replay.
func (s *service) replayed(t *testing.T, first, got contracttest.Reply) {
	t.Helper()
	contracttest.Replayed(t, s.profile, first, got)
}

// sendPatiently sends again what a store that was slow has refused: nothing was executed.
func (s *service) sendPatiently(t *testing.T, r request) contracttest.Reply {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		got := s.send(t, r)
		if !strings.Contains(got.Body, string(idemhttp.CodeStoreUnavailable)) || time.Now().After(end) {
			return got
		}
	}
}

func (s *service) build(t *testing.T, ctx context.Context, r request) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, r.Method, r.at.url+s.base+r.Path, strings.NewReader(r.Body))
	require.NoError(t, err)
	for name, values := range r.Header {
		req.Header[name] = values
	}
	if r.Tenant != anonymous {
		claims := map[string]any{}
		if r.Tenant != "" {
			claims["tenant"] = r.Tenant
		}
		token, err := s.issuer.Token("ophelia", claims, time.Hour)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req
}

func (s *service) do(req *http.Request) (contracttest.Reply, error) {
	res, err := s.client.Do(req)
	if err != nil {
		return contracttest.Reply{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return contracttest.Reply{Status: res.StatusCode, Header: res.Header, Body: string(raw)}, err
}

// anonymous is a client without token.
const anonymous = "-"

// background sends a request while the test goes on.
func (s *service) background(t *testing.T, r request) <-chan contracttest.Reply {
	t.Helper()
	done, req := make(chan contracttest.Reply, 1), s.build(t, context.WithoutCancel(t.Context()), r)
	go func() {
		got, err := s.do(req)
		if err != nil {
			got.Body = err.Error()
		}
		done <- got
	}()
	return done
}
