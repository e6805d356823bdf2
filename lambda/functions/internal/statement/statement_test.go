package statement

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/lambda/functions/internal/provider"
)

// reports is a provider of reports that cannot read the first ones.
type reports struct {
	keys       map[string]bool
	orders     int
	reads      int
	unreadable int
}

func (p *reports) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "POST /reports":
		p.orders++
		p.keys[r.Header.Get("Idempotency-Key")] = true
		_, _ = w.Write([]byte(`{"id": "r 1"}`))
	case "GET /reports/r 1":
		if p.reads++; p.reads <= p.unreadable {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`{"text": "in June"}`))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// functions are the two functions over a fresh table, each with an engine of its own.
type functions struct {
	t       *testing.T
	client  *dynamodb.Client
	table   string
	accepts idemlambda.HTTPAPIHandler
	worker  idemlambda.SQSHandler
	reasons []idemlambda.Reason
}

func deployed(t *testing.T, reports *reports) *functions {
	reports.keys = map[string]bool{}
	srv := httptest.NewServer(reports)
	t.Cleanup(srv.Close)
	client := dynamotest.Client(t)
	f := &functions{t: t, client: client, table: "idem-" + rand.Text()}
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: client}, f.table))
	engine := func() *idem.Engine {
		// How fast the table answers is not what is tested.
		store, err := dynamostore.New(client, f.table, &dynamostore.Options{AttemptTimeout: time.Minute})
		require.NoError(t, err)
		engine, err := idem.New(store, &idem.Options{ClaimBudget: 5 * time.Minute, FinishBudget: 5 * time.Minute})
		require.NoError(t, err)
		return engine
	}
	f.accepts = idemlambda.HTTPAPI(engine(), idemhttp.Routes{Route: Operation}, idemhttp.Claim("sub"),
		&idemhttp.Options{Later: Later()},
		func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			panic("the handler of accepted work ran")
		})
	f.worker = idemlambda.SQSWorker(engine(), Operation,
		&idemlambda.SQSOptions{OnOutcome: func(_ context.Context, d idemlambda.SQSDelivery) {
			f.reasons = append(f.reasons, d.Reason)
		}}, Maker{provider.Client{URL: srv.URL}}.Make)
	return f
}

func (f *functions) ask(method, path, body string) events.APIGatewayV2HTTPResponse {
	f.t.Helper()
	r := events.APIGatewayV2HTTPRequest{
		RouteKey: method + " " + path, RawPath: path, Body: body,
		Headers: map[string]string{"idempotency-key": "key-0123456789abc", "content-type": "application/json"},
	}
	if strings.HasPrefix(path, "/statements/") {
		r.RouteKey = method + " " + Status
	}
	r.RequestContext.HTTP.Method, r.RequestContext.HTTP.Path = method, path
	r.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"sub": "acme"}},
	}
	res, err := f.accepts(f.t.Context(), r)
	require.NoError(f.t, err)
	return res
}

// accept sends the request, which is accepted for later, and returns the path of its status.
func (f *functions) accept(body string) string {
	f.t.Helper()
	res := f.ask("POST", "/statements", body)
	require.Equal(f.t, 202, res.StatusCode, res.Body)
	return "/" + res.Headers["Location"]
}

// messages are what the outbox has for the queue.
func (f *functions) messages() (bodies []string) {
	out, err := f.client.Scan(f.t.Context(), &dynamodb.ScanInput{TableName: &f.table, ConsistentRead: new(true)})
	require.NoError(f.t, err)
	for _, it := range out.Items {
		if !strings.HasPrefix(it[schema.SK].(*types.AttributeValueMemberS).Value, schema.OutboxSK) {
			continue
		}
		require.Equal(f.t, &types.AttributeValueMemberS{Value: Destination}, it[schema.Destination])
		bodies = append(bodies, string(it[schema.Body].(*types.AttributeValueMemberB).Value))
	}
	return bodies
}

// deliver brings the worker the message.
func (f *functions) deliver(body string) idemlambda.Reason {
	f.t.Helper()
	_, err := f.worker(f.t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: rand.Text(), Body: body}}})
	require.NoError(f.t, err)
	return f.reasons[len(f.reasons)-1]
}

const june = `{"reference": "june", "kilobytes": 1}`

// The first attempt orders the report and cannot read it. The next one reads the same report.
func TestAStatementIsAcceptedAndMadeOfOneReport(t *testing.T) {
	p := &reports{unreadable: 1}
	f := deployed(t, p)
	at := f.accept(june)
	require.Equal(t, at, f.accept(june), "the same request is followed in the same place")
	require.Equal(t, 202, f.ask("GET", at, "").StatusCode)
	messages := f.messages()
	require.Len(t, messages, 1, "one message, with the acceptance")

	require.Equal(t, idemlambda.ReasonReleased, f.deliver(messages[0]))
	require.Equal(t, 202, f.ask("GET", at, "").StatusCode)
	require.Equal(t, idemlambda.ReasonExecuted, f.deliver(messages[0]))
	require.Equal(t, idemlambda.ReasonReplayed, f.deliver(messages[0]), "a message that comes again is acknowledged")
	require.Equal(t, []int{1, 2}, []int{p.orders, p.reads})
	require.Len(t, p.keys, 1)
	require.NotContains(t, p.keys, "")

	for _, res := range []events.APIGatewayV2HTTPResponse{f.ask("GET", at, ""), f.ask("POST", "/statements", june)} {
		require.Equal(t, 200, res.StatusCode)
		var got Statement
		require.NoError(t, json.Unmarshal([]byte(res.Body), &got))
		require.Equal(t, Statement{"r 1", "in June"}, got)
	}
	head := f.ask("HEAD", at, "")
	require.Equal(t, 200, head.StatusCode)
	require.Empty(t, head.Body)
	require.Equal(t, 409, f.ask("DELETE", at, "").StatusCode, "it is done")
}

func TestACancelledStatementIsNotMade(t *testing.T) {
	p := &reports{}
	f := deployed(t, p)
	at := f.accept(june)
	require.Equal(t, 204, f.ask("DELETE", at, "").StatusCode)
	require.Equal(t, 409, f.ask("GET", at, "").StatusCode)
	require.Equal(t, idemlambda.ReasonFailed, f.deliver(f.messages()[0]))
	require.Zero(t, p.orders)
}

// What is wrong with the input is told by the status, and another failure is not.
func TestAStatementThatCannotBeMadeIsTold(t *testing.T) {
	for body, want := range map[string]int{
		`{"reference": "june"}`:                         400,
		`{"kilobytes": 1}`:                              400,
		`{"reference": "june", "kilobytes": 1025}`:      400,
		`{"reference": "june", "kilobytes": "a dozen"}`: 202, // a mistake that another version may understand
	} {
		t.Run(body, func(t *testing.T) {
			p := &reports{}
			f := deployed(t, p)
			at := f.accept(body)
			f.deliver(f.messages()[0])
			res := f.ask("GET", at, "")
			require.Equal(t, want, res.StatusCode, res.Body)
			if want == 400 {
				require.Contains(t, res.Body, "kilobytes from 1 to 1024")
			}
			require.Zero(t, p.orders)
		})
	}
	require.Nil(t, failed(idem.Failure{Message: "the provider's secret", Code: "other"}))
}
