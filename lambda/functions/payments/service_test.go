package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/stretchr/testify/require"
)

// provided is the deployed handler over an in-memory store, and a provider that answers so.
func provided(t *testing.T, answer http.HandlerFunc) func(route, key, body string) (response, error) {
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	return function(t, srv.URL)
}

func function(t *testing.T, url string) func(route, key, body string) (response, error) {
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	s := &service{provider: provider{url}}
	handler, err := s.behind(engine, "http", "none")
	require.NoError(t, err)
	h := handler.(idemlambda.HTTPAPIHandler)
	return func(route, key, body string) (response, error) {
		r := request{RouteKey: route, Body: body, Headers: map[string]string{
			"idempotency-key": key, "content-type": "application/json",
		}}
		r.RequestContext.HTTP.Method = "POST"
		return h(context.Background(), r)
	}
}

const good = `{"amount": 100, "currency": "EUR"}`

func TestProviderGetsTheTokenWhereItTakesOne(t *testing.T) {
	var keys []string
	call := provided(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.URL.Path+" "+r.Header.Get("Idempotency-Key")+" "+r.Header.Get("Merchant-Reference"))
		_, _ = w.Write([]byte(`{"id": "ch_1"}`))
	})
	for range 2 {
		for _, route := range []string{"POST /payments", "POST /refunds"} {
			res, err := call(route, "key-0123456789abc", good)
			require.NoError(t, err)
			require.Equal(t, 201, res.StatusCode)
		}
	}
	require.Len(t, keys, 2, "each ran once")
	require.Regexp(t, `^/charges [0-9a-f-]{36} $`, keys[0])
	require.Regexp(t, `^/refunds  [0-9a-f-]{36}$`, keys[1], "a name to ask for it by, and no key")
}

func TestDeclinedIsRecorded(t *testing.T) {
	asked := 0
	call := provided(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusPaymentRequired)
	})
	for range 2 {
		res, err := call("POST /refunds", "key-0123456789abc", good)
		require.NoError(t, err)
		require.Equal(t, 402, res.StatusCode)
	}
	require.Equal(t, 1, asked)
}

// A refused connection excludes a refund; a broken answer does not.
func TestWhatARefundMayTryAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	call := function(t, "http://"+addr)
	for range 2 {
		res, err := call("POST /refunds", "key-0123456789abc", good)
		require.NoError(t, err)
		require.Equal(t, 503, res.StatusCode)
		require.Contains(t, res.Body, "operation_unavailable")
	}

	call = provided(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err = call("POST /refunds", "key-0123456789abc", good)
	require.Error(t, err)
	res, err := call("POST /refunds", "key-0123456789abc", good)
	require.NoError(t, err)
	require.Equal(t, 409, res.StatusCode)
	require.Contains(t, res.Body, "outcome_unknown")
}

func TestBadRequestsAreNotRecorded(t *testing.T) {
	call := function(t, "http://127.0.0.1:1")
	for _, route := range []string{"POST /payments", "POST /refunds"} {
		for range 2 {
			res, err := call(route, "key-0123456789abc", `{}`)
			require.NoError(t, err)
			require.Equal(t, 400, res.StatusCode)
			require.NotContains(t, res.Headers, idemhttp.HeaderReplayed)
		}
	}
}

// The provider has made the refund and redirects to it. That there is no connection to where it leads says
// nothing about the refund.
func TestARedirectAfterARefundDoesNotRepeatIt(t *testing.T) {
	refunds := 0
	call := provided(t, func(w http.ResponseWriter, _ *http.Request) {
		refunds++
		w.Header().Set("Location", "http://127.0.0.1:1/refunds/re_1")
		w.WriteHeader(http.StatusSeeOther)
	})
	for range 2 {
		_, _ = call("POST /refunds", "key-0123456789abc", good)
	}
	require.Equal(t, 1, refunds)
}

func TestBehindARESTAPI(t *testing.T) {
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = w.Write([]byte(`{"id": "ch_1"}`))
	}))
	defer srv.Close()
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	handler, err := (&service{provider: provider{srv.URL}}).behind(engine, "rest", "lambda:tenant")
	require.NoError(t, err)
	r := events.APIGatewayProxyRequest{
		HTTPMethod: "POST", Path: "/payments", Resource: "/payments", Body: good,
		Headers: map[string]string{"Idempotency-Key": "key-0123456789abc", "Content-Type": "application/json"},
	}
	call := handler.(idemlambda.RESTAPIHandler)
	res, err := call(context.Background(), r)
	require.NoError(t, err)
	require.Equal(t, 403, res.StatusCode, "refused without a tenant")
	r.RequestContext.Authorizer = map[string]any{"tenant": "acme"}
	for range 2 {
		res, err = call(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, 201, res.StatusCode, res.Body)
	}
	require.Equal(t, 1, asked)
}

func TestBehindRefuses(t *testing.T) {
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	for _, set := range [][2]string{{"soap", ""}, {"http", "jwt:"}, {"http", "cookie"}, {"http", "iam:x"}} {
		_, err := (&service{}).behind(engine, set[0], set[1])
		require.ErrorContains(t, err, "use ", set)
	}
	for _, tenant := range []string{"", "jwt:email", "lambda:tenant", "iam", "none"} {
		handler, err := (&service{}).behind(engine, "", tenant)
		require.NoError(t, err)
		require.IsType(t, idemlambda.HTTPAPIHandler(nil), handler)
	}
}

// statements are the payments function over a fresh table, with an engine over it for a worker.
type statements struct {
	t       *testing.T
	client  *dynamodb.Client
	table   string
	engine  *idem.Engine
	service *service
}

// newStatements has a table: the message that brings the worker commits with the acceptance.
func newStatements(t *testing.T) *statements {
	s := &statements{t, dynamotest.Client(t), "idem-" + rand.Text(), nil, &service{}}
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: s.client}, s.table))
	// How fast the table answers is not what is tested.
	store, err := dynamostore.New(s.client, s.table, &dynamostore.Options{AttemptTimeout: time.Minute})
	require.NoError(t, err)
	s.engine, err = idem.New(store, &idem.Options{ClaimBudget: 5 * time.Minute, FinishBudget: 5 * time.Minute})
	require.NoError(t, err)
	return s
}

// answered is what a client gets.
type answered struct {
	status         int
	location, body string
}

// behind sends requests with the key to the function behind an API of this flavour.
func (s *statements) behind(api, key string) func(method, path, resource, body string) answered {
	handler, err := s.service.behind(s.engine, api, "none")
	require.NoError(s.t, err)
	header := map[string]string{"Idempotency-Key": key, "Content-Type": "application/json"}
	return func(method, path, resource, body string) answered {
		if api == "rest" {
			r := events.APIGatewayProxyRequest{HTTPMethod: method, Path: path, Resource: resource, Body: body, Headers: header}
			res, err := handler.(idemlambda.RESTAPIHandler)(s.t.Context(), r)
			require.NoError(s.t, err)
			return answered{res.StatusCode, res.Headers["Location"], res.Body}
		}
		r := request{RouteKey: method + " " + resource, RawPath: path, Body: body, Headers: header}
		r.RequestContext.HTTP.Method, r.RequestContext.HTTP.Path = method, path
		res, err := handler.(idemlambda.HTTPAPIHandler)(s.t.Context(), r)
		require.NoError(s.t, err)
		return answered{res.StatusCode, res.Headers["Location"], res.Body}
	}
}

// messages are what the outbox has for the queue: the ids of the records.
func (s *statements) messages() (ids []string) {
	out, err := s.client.Scan(s.t.Context(), &dynamodb.ScanInput{TableName: &s.table, ConsistentRead: new(true)})
	require.NoError(s.t, err)
	for _, it := range out.Items {
		if strings.HasPrefix(it[schema.SK].(*types.AttributeValueMemberS).Value, schema.OutboxSK) {
			require.Equal(s.t, &types.AttributeValueMemberS{Value: statementDestination}, it[schema.Destination])
			ids = append(ids, string(it[schema.Body].(*types.AttributeValueMemberB).Value))
		}
	}
	return ids
}

const june = `{"reference": "june", "kilobytes": 1}`

func TestStatementsAreAcceptedForLaterBehindBothAPIs(t *testing.T) {
	for _, api := range []string{"http", "rest"} {
		t.Run(api, func(t *testing.T) {
			s := newStatements(t)
			ask := s.behind(api, "key-0123456789abc")
			accepted := ask("POST", "/statements", "/statements", june)
			require.Equal(t, 202, accepted.status, accepted.body)
			require.Equal(t, accepted.location, ask("POST", "/statements", "/statements", june).location)
			require.Len(t, s.messages(), 1, "one message, with the acceptance")
			require.Equal(t, 202, ask("GET", "/"+accepted.location, statementStatus, "").status)
			require.Equal(t, 204, ask("DELETE", "/"+accepted.location, statementStatus, "").status)
			require.Equal(t, 409, ask("GET", "/"+accepted.location, statementStatus, "").status)
			require.Equal(t, 404, ask("GET", "/statements/june", statementStatus, "").status)
		})
	}
}

// refusal is an error as the worker has it.
type refusal struct{ error }

func (refusal) ErrorCode() string { return "bad_request" }

// The status has the statement. Of a failure it says what is wrong with the request, and nothing of another one.
func TestTheStatusSaysWhatBecameOfAStatement(t *testing.T) {
	for want, made := range map[int]struct {
		err  error
		body string
	}{
		200: {nil, `{"text":"in June"}`},
		400: {refusal{errors.New("send kilobytes from 1 to 1024")}, "kilobytes from 1 to 1024"},
		500: {errors.New("the provider's secret"), "operation_failed"},
	} {
		s := newStatements(t)
		ask := s.behind("http", "key-0123456789abc")
		at := "/" + ask("POST", "/statements", "/statements", june).location
		_, err := later.Work(t.Context(), s.engine, operations[statementRoute], s.messages()[0],
			func(_ context.Context, in map[string]any) (map[string]string, error) {
				require.Equal(t, map[string]any{"reference": "june", "kilobytes": 1.0}, in)
				return map[string]string{"text": "in June"}, idem.Permanent(made.err)
			})
		require.Equal(t, made.err, err)
		for _, got := range []answered{
			ask("GET", at, statementStatus, ""), ask("POST", "/statements", "/statements", june),
		} {
			require.Equal(t, want, got.status, got.body)
			require.Contains(t, got.body, made.body)
			require.NotContains(t, got.body, "secret")
		}
		head := ask("HEAD", at, statementStatus, "")
		require.Equal(t, want, head.status)
		require.Empty(t, head.body)
		require.Equal(t, 409, ask("DELETE", at, statementStatus, "").status, "it is done")
	}
}
