package outside

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/local/proof/internal/consumer"
)

// The page, from an empty folder on: functions without a template, then with a CDK app.
func TestThePage(t *testing.T) {
	childtest.NeedProc(t)
	module, _ := consumer.New(t)
	require.NoError(t, os.Remove(filepath.Join(module.Dir, "go.mod")))
	m := &terminal{Module: module}
	module.Env = []string{"GOFLAGS=" + consumer.Flags, "IDEM_RUN_DIR=" + m.runDir(), "IDEM_DYNAMODB_ENDPOINT="}
	fiveMinutes(t, m)
	ownTemplate(t, m)
}

func fiveMinutes(t *testing.T, m *terminal) {
	lines := section(t, "Five minutes")
	last := len(lines) - 1 // it is for after the decision
	var orders []string
	for _, l := range lines[:last] {
		out := m.run(l)
		if strings.HasPrefix(l.command, "send orders ") {
			_, body, _ := strings.Cut(out, "\r\n\r\n")
			orders = append(orders, body)
		}
	}
	require.Len(t, orders, 2)
	require.Equal(t, orders[0], orders[1], "the same bytes")
	s := m.session
	s.prints(`(?m)^orders  (done)  acme#packing#\S+ completed`)
	s.prints(`(?m)^(POST /refunds)  409 outcome_unknown  acme#refund#\S+ unknown`)
	require.Contains(t, s.said(), "packs 1999 cents for acme")
	require.Equal(t, 1, strings.Count(s.said(), "the bank pays 1999 cents to acme"), s.said())
	require.NotContains(t, s.said(), "easy to guess", "the page has keys to copy")
	requireTerminal(t, strings.ReplaceAll(s.said(), s.url, "http://127.0.0.1:8080"))

	console := s.prints(`(?m)^console +(\S+) of`)
	record := regexp.MustCompile(`href="/record(\?id=[^"&]*refund[^"&]*)"`).FindStringSubmatch(get(t, console+"/"))
	require.NotNil(t, record, "the overview has the question")
	picture(t, console+"/record"+record[1])
	settle(t, console, record[1])
	require.Contains(t, m.run(lines[last]), `{"refunded": true}`)
	s.prints(`(?m)^(POST /refunds)  201 replayed  acme#refund#`)
	s.interrupt()
}

// ownTemplate goes on in the same folder.
func ownTemplate(t *testing.T, m *terminal) {
	for _, l := range section(t, "Your own template") {
		m.run(l)
	}
	s := m.session
	refused := answer{http.StatusBadRequest, false, `{"message": "send a number of cents"}`}
	s.until("bad input is refused, at the latest after the lease of a claim that a busy store has kept", func() bool {
		return s.post("/orders", "order-0000000000001", `{"cents":"100"}`) == refused
	})
	first := s.post("/orders", "order-0000000000002", `{"cents":100}`)
	require.Equal(t, http.StatusCreated, first.status, first.body)
	again := s.post("/orders", "order-0000000000002", `{"cents":100}`)
	require.Equal(t, answer{http.StatusCreated, true, first.body}, again)
	require.Equal(t, http.StatusUnprocessableEntity, s.post("/orders", "order-0000000000002", `{"cents":200}`).status)
	require.Equal(t, http.StatusBadRequest, s.post("/orders", "", `{"cents":100}`).status)
	require.Equal(t, http.StatusNotFound, s.post("/refunds", "refund-000000000002", `{"cents":100}`).status)

	// The relay brings the message of the transaction to the queue, and the packing of it commits.
	s.until("it is packed", func() bool { return s.total("acme") == "100" })

	// A process that dies before its transaction has done nothing: a retry after its lease does it all.
	m.run(line{command: "go tool local kill Shop"})
	require.Equal(t, http.StatusInternalServerError, s.post("/orders", "order-0000000000003", `{"cents":10}`).status)
	s.prints(`(Shop\S+ was killed before the call to DynamoDB that records how the attempt ended)`)
	s.until("the lease is over", func() bool {
		return s.post("/orders", "order-0000000000003", `{"cents":10}`).status == http.StatusCreated
	})
	s.until("it is packed once", func() bool { return s.total("acme") == "110" })

	// The queue takes both messages, since they have other ids for it.
	queues := queue.NewClient(s.prints(`AWS_ENDPOINT_URL_SQS=(\S+)\n`))
	orders := s.prints(`(?m)^queue +(\S+/Example-Orders\S+\.fifo)$`)
	for _, id := range []string{"first", "second"} {
		_, err := queues.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &orders,
			MessageBody: aws.String(`{"customer":"bob","id":"order-1","cents":7}`), MessageGroupId: aws.String("bob"),
			MessageDeduplicationId: &id})
		require.NoError(t, err)
	}
	s.until("both are deleted", func() bool {
		held, err := queue.Held(t.Context(), queues, orders)
		return err == nil && held == 0
	})
	require.Equal(t, "7", s.total("bob"), "one is packed")

	// A change of the app, synthesized while it runs.
	app := filepath.Join(m.Dir, "shop", "deploy", "main.go")
	source, err := os.ReadFile(app)
	require.NoError(t, err)
	changed := strings.NewReplacer(`{{Route: "POST /orders"}}`, `{{Route: "POST /orders"}, {Route: "POST /refunds"}}`,
		"5 * time.Second", "6 * time.Second").Replace(string(source))
	require.NoError(t, os.WriteFile(app, []byte(changed), 0o600))
	m.run(line{command: "CDK_OUTDIR=cdk.out go run ./deploy"})
	tries := 0 // each with a key of its own, since a refund is not repeated
	s.until("the new route is there", func() bool {
		tries++
		return s.post("/refunds", fmt.Sprintf("refund-%012d", tries), `{"cents":100}`).status == http.StatusCreated
	})
	s.prints(`(Example-Shop\S+ has changed)`)
	require.NotContains(t, s.said(), "Packing has changed")
	require.Equal(t, again, s.post("/orders", "order-0000000000002", `{"cents":100}`), "the table keeps its records")
	s.interrupt()
	require.NotContains(t, s.said(), "Permissions that are missing")

	// The next start has what the tables had.
	m.run(line{command: "go tool local up cdk.out"})
	s = m.session
	require.Equal(t, again, s.post("/orders", "order-0000000000002", `{"cents":100}`))
	require.Equal(t, []string{"110", "7"}, []string{s.total("acme"), s.total("bob")})
	s.interrupt()
}

// total is what the table of the app has for a customer.
func (s *session) total(customer string) string {
	s.Helper()
	tables := dynamodb.New(dynamodb.Options{BaseEndpoint: aws.String(s.prints(`AWS_ENDPOINT_URL_DYNAMODB=(\S+)\n`)),
		Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("idemlocal", "idemlocal", "")})
	out, err := tables.GetItem(s.Context(), &dynamodb.GetItemInput{
		TableName: aws.String(s.prints(`(?m)^table +(Example-Totals\S+)$`)), ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{"customer": &types.AttributeValueMemberS{Value: customer}},
	})
	require.NoError(s, err)
	if cents, ok := out.Item["cents"].(*types.AttributeValueMemberN); ok {
		return cents.Value
	}
	return ""
}

func get(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	require.NoError(t, err)
	return text(t, res)
}

func text(t *testing.T, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(body)
}

var hidden = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)

// settle does in the console what the page says.
func settle(t *testing.T, console, record string) {
	form := url.Values{"known": {"yes"}, "status": {"201"}, "headers": {"Content-Type: application/json"},
		"result": {`{"refunded": true}`}, "why": {"the log says that the bank has paid"}}
	for _, field := range hidden.FindAllStringSubmatch(get(t, console+"/act"+record+"&to=completed"), -1) {
		form.Set(field[1], html.UnescapeString(field[2]))
	}
	res, err := http.PostForm(console+"/act", form)
	require.NoError(t, err)
	require.Contains(t, text(t, res), "Recorded.")
}
