package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	"github.com/idem-go/idempotency/local/aws/gateway"
	"github.com/idem-go/idempotency/local/cloud"
)

const root = "../../.."

// environment is that of a caller who has these credentials and nothing else of AWS.
func environment(t *testing.T, key, secret string) {
	t.Helper()
	none := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none,
	} {
		t.Setenv(name, value)
	}
}

// stacks are the example's, as their templates describe them: their API takes signatures alone. The provider fails on
// demand.
type stacks struct {
	*cloud.Running
	fails   atomic.Bool
	outputs string // the file
}

func start(t *testing.T) *stacks {
	t.Helper()
	dynamotest.Endpoint(t) // both servers can be had here
	queuetest.Endpoint(t)
	s := &stacks{outputs: filepath.Join(t.TempDir(), "outputs.json")}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if s.fails.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"id": "made"})
	}))
	t.Cleanup(provider.Close)
	dir, err := filepath.Abs(root)
	require.NoError(t, err)
	s.Running, err = cloud.Start(t.Context(), filepath.Join(root, "template-tests/testdata/snapshots"), &cloud.Options{
		Dir: dir, RunDir: t.TempDir(), Output: t.Output(), Log: t.Logf,
		Adjust: func(p *cloud.Plan) {
			for _, f := range p.Functions {
				if f.Env["PROVIDER_URL"] != "" {
					f.Env["PROVIDER_URL"] = provider.URL
				}
				if path.Base(f.Package) == "orders" {
					require.Equal(t, ordersTimeout, f.Timeout)
				}
			}
		},
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", s.Endpoints.DynamoDB)
	t.Setenv("AWS_ENDPOINT_URL_SQS", s.Endpoints.Queues)
	require.NoError(t, s.Plan().WriteOutputs(s.outputs))
	return s
}

// items are those of all tables that are about a run, but for messages of the outbox.
func (s *stacks) items(t *testing.T) (all []map[string]types.AttributeValue) {
	t.Helper()
	for _, table := range s.Plan().Tables {
		got, err := s.DynamoDB.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table.Name, ConsistentRead: new(true)})
		require.NoError(t, err)
		all = append(all, got.Items...)
	}
	return slices.DeleteFunc(all, func(item map[string]types.AttributeValue) bool {
		sk, ok := item[schema.SK].(*types.AttributeValueMemberS)
		return ok && strings.HasPrefix(sk.Value, schema.OutboxSK)
	})
}

// output keeps what is printed, and calls at after a line with the text.
type output struct {
	strings.Builder
	text string
	at   func()
}

func (o *output) Write(p []byte) (int, error) {
	if o.text != "" && strings.Contains(string(p), o.text) {
		o.at()
	}
	return o.Builder.Write(p)
}

func TestSmoke(t *testing.T) {
	s := start(t)
	const lines = 12
	outputs := s.Plan().Outputs
	wrong := func(name, value string) options { // one output of payments-api
		payments := maps.Clone(outputs["payments-api"])
		payments[name] = value
		text, err := json.Marshal(map[string]any{"payments-api": payments, "orders-worker": outputs["orders-worker"]})
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), name+".json")
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return options{outputs: file}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	forget := func(stack string) { // its records
		for _, item := range s.items(t) {
			if item[schema.PK] != nil { // one of the other table is not there
				_, err := s.DynamoDB.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
					TableName: new(outputs[stack]["TableName"]),
					Key:       map[string]types.AttributeValue{schema.PK: item[schema.PK], schema.SK: item[schema.SK]},
				})
				require.NoError(t, err)
			}
		}
	}
	orders, queueURL := queue.NewClient(s.Endpoints.Queues), outputs["orders-worker"]["QueueURL"]
	for name, c := range map[string]struct {
		options
		ctx    context.Context
		secret string
		fails  bool   // the provider
		after  string // a line
		do     func()
		ok     int      // lines
		want   []string // what is printed
		err    string
		stays  int // items
	}{
		"all as it must be": {ok: lines, want: []string{
			"ok  a payment of 0.01 EUR", "deleted: the record of smoke-", "deleted: the row of the order smoke-",
			"left:    the payment of 0.01 EUR with the reference smoke-", "left:    the message order.accepted about smoke-",
		}},
		"URL alone": {options: options{url: outputs["payments-api"]["URL"]}, ok: 6, stays: 1, want: []string{
			"without -outputs there are only the lines over HTTP", "left:    the record of smoke-",
		}},
		"wrong URL": {options: wrong("URL", "http://127.0.0.1:1/"), ok: 4, err: "there is a difference",
			want: []string{"NO  a request without credentials", "connection refused", "nothing was written"}},
		"wrong table": {options: wrong("TableName", outputs["orders-worker"]["OrdersTableName"]), ok: lines - 7,
			err: "there is a difference", want: []string{"NO  the records of payments",
				"has the keys customer (S), order_id (S)", "nothing was written"}},
		"wrong secret": {secret: "other", ok: 5, err: "there is a difference",
			want: []string{"NO  a status that is not there          403 Forbidden\n    expected:  404 status_not_found"}},
		"no provider": {fails: true, ok: lines - 3, err: "there is a difference", want: []string{
			"500: the function fails, as it does without a payment provider: deploy with -c provider=https://...",
			"deleted: the record of smoke-", "left:    perhaps the payment of 0.01 EUR",
		}},
		"a second execution": {after: "ok  an order through the queue", ok: lines - 1,
			do:  func() { forget("orders-worker") },
			err: "there is a difference", want: []string{"NO  the producer sends it again", "OTHER record"}},
		"a record that is not found": {after: "ok  without a key", do: func() { forget("payments-api") }, ok: lines,
			err: "there is a difference", want: []string{"operation charge, in ", ": it is not there"}},
		"others use the queue": {after: "ok  the records of orders", ok: lines - 1, do: func() {
			settling = 10 * time.Second
			_, err := orders.SendMessage(t.Context(), &sqs.SendMessageInput{
				QueueUrl: &queueURL, MessageBody: new("other"), DelaySeconds: 900,
			})
			require.NoError(t, err)
		}, want: []string{"??  the producer sends it again         not seen", "left:    perhaps a message of the order",
			"deleted: the record of smoke-", "deleted: the row"}},
		"interrupted": {ctx: ctx, after: "ok  an order through the queue", do: cancel, ok: lines - 1, err: "interrupted",
			want: []string{"deleted: the row of the order"}},
	} {
		t.Run(name, func(t *testing.T) {
			secret := cloud.SecretKey
			if c.secret != "" {
				secret = c.secret
			}
			environment(t, cloud.AccessKey, secret)
			if c.options == (options{}) {
				c.outputs = s.outputs
			}
			if c.outputs == "" {
				t.Setenv("AWS_REGION", "us-east-1")
			}
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			settling = 0 // this server's numbers do not lag
			s.fails.Store(c.fails)
			before := len(s.items(t))
			out := &output{text: c.after, at: c.do}
			err := smoke(c.ctx, c.options, out)
			_, purged := orders.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: &queueURL})
			require.NoError(t, purged)
			if c.err == "" {
				require.NoError(t, err, out)
			} else {
				require.ErrorContains(t, err, c.err, out)
			}
			require.Equal(t, c.ok, strings.Count("\n"+out.String(), "\nok  "), out)
			for _, text := range c.want {
				require.Contains(t, out.String(), text)
			}
			require.Len(t, s.items(t), before+c.stays, out)
			forget("payments-api") // what stays is not in the way of the next case
		})
	}
}

// An order that stays in the queue is an error, unless it may be that of others.
func TestDrain(t *testing.T) {
	for name, c := range map[string]struct {
		held         []int // then the last one
		fails, empty bool
	}{
		"it leaves":             {held: []int{1, 0, 1, 0}, empty: true},
		"it stays":              {held: []int{2, 0, 1}, fails: true},
		"it is counted late":    {held: []int{0, 0, 0, 0, 0, 1}, fails: true},
		"others come":           {held: []int{2, 3, 1}},
		"others came, and left": {held: []int{3, 0}, empty: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = fmt.Fprintf(w, `{"Attributes": {"ApproximateNumberOfMessages": "%d", `+
						`"ApproximateNumberOfMessagesNotVisible": "0", "ApproximateNumberOfMessagesDelayed": "0"}}`, c.held[0])
					c.held = c.held[min(1, len(c.held)-1):]
				})
				o := queue.NewClient("http://queues").Options()
				o.HTTPClient = direct{server}
				r := &run{queues: sqs.New(o), sent: 2, last: time.Now(), delay: 4*time.Second - settling}
				empty, err := r.drain(t.Context(), time.Minute)
				require.Equal(t, c.fails, err != nil, err)
				require.Equal(t, c.empty, empty)
				require.Equal(t, !c.empty && !c.fails, len(r.left) > 0)
				require.Equal(t, c.fails, r.sent > 0)
			})
		})
	}
}

// direct calls a server without a connection.
type direct struct{ http.Handler }

func (d direct) Do(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	d.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// A payment is named unless its answer excludes that the provider has it.
func TestPaymentsThatAreLeft(t *testing.T) {
	for name, c := range map[string]struct {
		answers        []int
		named, perhaps int
	}{
		"paid once":           {[]int{201, 201, 422, 400}, 1, 0},
		"an error":            {[]int{500, 400}, 0, 1},
		"no key, and paid":    {[]int{500, 201}, 1, 1},
		"after a lost answer": {[]int{503, 409, 400}, 0, 1},
		"refused":             {[]int{403, 403}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.answers[0])
				c.answers = c.answers[1:]
			}))
			defer server.Close()
			r := &run{ctx: t.Context(), say: t.Logf, url: server.URL, token: "x", name: "smoke-x"}
			r.pay()
			left := strings.Join(r.left, "\n")
			require.Equal(t, c.perhaps, strings.Count(left, "perhaps the payment"), left)
			require.Equal(t, c.named+c.perhaps, strings.Count(left, "the payment"), left)
			require.Empty(t, c.answers)
		})
	}
}

// What cannot begin says what to do.
func TestTargets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "outputs.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"payments-api": {"AlarmTopic": "arn:aws:sns:eu-west-1:1:a"}}`), 0o600))
	environment(t, "", "")
	for want, o := range map[string]options{
		"has not the outputs of both stacks of the example": {outputs: file},
		"cdk deploy --outputs-file writes it":               {outputs: file + "x"},
		"set either -outputs":                               {},
		"or -url":                                           {outputs: file, url: "https://other.example"},
		"set AWS_PROFILE and AWS_REGION":                    {url: "https://x.execute-api.eu-west-1.amazonaws.com"},
		"-token is no JSON Web Token":                       {url: "https://payments.example", token: "secret"},
	} {
		require.ErrorContains(t, smoke(t.Context(), o, &output{}), want)
	}
	token, err := gateway.NewIssuer().Token("acme", nil, time.Hour)
	require.NoError(t, err)
	r := &run{ctx: t.Context()}
	require.NoError(t, r.find(options{url: "https://x.execute-api.eu-west-1.amazonaws.com/", token: token}))
	require.Contains(t, r.tenants, "acme")
	require.Equal(t, "https://x.execute-api.eu-west-1.amazonaws.com", r.url)
	require.Equal(t, "eu-west-1", r.config.Region)
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	require.NoError(t, r.caller(req, ""))
	require.Equal(t, "Bearer "+token, req.Header.Get("Authorization"))
}

// A file of two deployments could send a payment to the other one.
func TestSeveralDeployments(t *testing.T) {
	environment(t, "key", "secret")
	file := filepath.Join(t.TempDir(), "outputs.json")
	for _, c := range []struct{ payments, orders []string }{
		{[]string{"test-", "prod-"}, []string{"test-", "prod-"}},
		{[]string{"", "prod-"}, []string{"prod-"}},
		{[]string{"prod-"}, []string{"", "prod-"}},
		{[]string{"test-"}, []string{"prod-"}},
		{[]string{"test-"}, []string{"test-"}},
	} {
		stacks := map[string]map[string]string{"other": {"URL": "https://other"}}
		for _, prefix := range c.payments {
			stacks[prefix+paymentsStack] = map[string]string{
				"AlarmTopic": "arn:aws:sns:eu-west-1:1:a", "URL": "https://" + prefix,
			}
		}
		for _, prefix := range c.orders {
			stacks[prefix+ordersStack] = map[string]string{"QueueURL": "https://queue/" + prefix}
		}
		text, err := json.Marshal(stacks)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		r := &run{ctx: t.Context()}
		err = r.find(options{outputs: file})
		if len(stacks) == 3 && c.payments[0] == c.orders[0] {
			require.NoError(t, err)
			require.Equal(t, "https://test-", r.url)
			require.Equal(t, "https://queue/test-", r.orders["QueueURL"])
			continue
		}
		require.ErrorContains(t, err, "to a file of its own, with cdk deploy --all -c prefix=... --outputs-file")
		delete(stacks, "other")
		for name := range stacks {
			require.ErrorContains(t, err, name)
		}
		require.Empty(t, r.url)
	}
}
