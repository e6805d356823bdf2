package cloud

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/queue"
)

const minute, tick = time.Minute, 10 * time.Millisecond

func post(t *testing.T, url, body string) string {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(text)
}

// prints waits for what functions print.
func prints(t *testing.T, out *childtest.Output, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), text) }, minute, tick, out)
}

// sends sends a message to a queue.
func sends(t *testing.T, r *Running, name, body string) {
	t.Helper()
	_, err := queue.NewClient(r.Endpoints.Queues).SendMessage(t.Context(),
		&sqs.SendMessageInput{QueueUrl: aws.String(r.Plan().QueueURL(name)), MessageBody: &body})
	require.NoError(t, err)
}

// open is the shop with the function of the tests and an API for everybody, and changes.
func open(changes ...string) string {
	return strings.NewReplacer(append(changes, "./cmd/charge", "./testdata/shop", "AWS_IAM", "NONE")...).Replace(shop)
}

// A table, an API, a function and a FIFO queue run as their template says, and as it says after a change.
func TestStart(t *testing.T) {
	r, out := started(t, open(), Options{Log: t.Logf})
	url := r.Endpoints.APIs["Shop-Api"]
	require.Equal(t, "sent", post(t, url+"/charges", `{"order":1}`), out.String())
	prints(t, out, `"body":"{\"order\":1}"`)
	before := r.functions["Shop-Charge"].current

	require.NoError(t, r.Update(t.Context()))
	require.Same(t, before, r.functions["Shop-Charge"].current, "nothing has changed")

	require.NoError(t, rewrite(t, r, open("POST /charges", "POST /orders", "Timeout: 20", "Timeout: 21",
		"VisibilityTimeout: 120", "VisibilityTimeout: 180")))
	require.NotSame(t, before, r.functions["Shop-Charge"].current)
	require.Equal(t, "sent", post(t, url+"/orders", `{"order":2}`), out.String())
	prints(t, out, `"body":"{\"order\":2}"`)
	require.JSONEq(t, `{"message":"Not Found"}`, post(t, url+"/charges", ""))

	for before, after := range map[string]string{
		"NEW_AND_OLD_IMAGES": "KEYS_ONLY", "AttributeType: S": "AttributeType: N",
	} {
		require.ErrorContains(t, rewrite(t, r, open(before, after)),
			"the table Shop-Records is there with other keys, indexes or another "+"stream")
	}
	require.ErrorContains(t, rewrite(t, r, open("!GetAtt Orders.Arn", "arn:aws:sqs:a:b:none")), "there is no queue none")
	require.Equal(t, "sent", post(t, url+"/orders", `{"order":3}`), "what ran before runs on")
}

// A function is also invoked without an API, by operators and by other functions.
func TestInvoke(t *testing.T) {
	reported := make(chan Invocation, 9)
	r, out := started(t, apis, Options{Invoked: func(i Invocation) { reported <- i }})
	invoke := func(name, kind, event string) (*http.Response, string) {
		t.Helper()
		res, err := http.DefaultClient.Do(newRequest(t, "POST", r.Endpoints.Functions+"/2015-03-31/functions/"+name+
			"/invocations", event, "X-Amz-Invocation-Type: "+kind, signedBy(AccessKey, "lambda")))
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res, string(body)
	}
	for name, c := range map[string]struct {
		name, kind, event string
		status            int
		failed            string
		want              string
	}{
		"its name": {"Shop-Echo", "RequestResponse", `{"routeKey":"$default"}`, 200, "", `{"body":"{`},
		"its ARN":  {"arn:aws:lambda:us-east-1:1:function:Shop-Echo:live", "", "", 200, "", `{"batchItemFailures":`},
		"it fails": {"Shop-Echo", "", `{"do":"fail"}`, 200, "Unhandled", `"errorMessage":"it fails"`},
		"later":    {"Shop-Echo", "Event", `{"do":"it later"}`, 202, "", ""},
		"dry run":  {"Shop-Echo", "DryRun", `{"do":"it dry"}`, 204, "", ""},
		"no such":  {"none", "", "", 404, "", "Function not found: none"},
		"nor dry":  {"none", "DryRun", "", 404, "", "Function not found: none"},
	} {
		res, body := invoke(c.name, c.kind, c.event)
		require.Equal(t, c.status, res.StatusCode, "%s: %s", name, body)
		require.Equal(t, c.failed, res.Header.Get("X-Amz-Function-Error"), name)
		require.Contains(t, body, c.want, name)
	}
	prints(t, out, "it later")
	for range 4 {
		i := <-reported
		require.Equal(t, []string{"Invoke of Shop-Echo", "Shop-Echo"}, []string{i.Source, i.Function})
	}
	require.Contains(t, out.String(), "Shop-Echo: errorString: it fails")
	for name, to := range map[string][2]string{
		"another action":     {"/2015-03-31/functions/Shop-Echo/aliases", "lambda"},
		"of another service": {"/2015-03-31/functions/Shop-Echo/invocations", "s3"},
	} {
		status, body := send(t, newRequest(t, "POST", r.Endpoints.Functions+to[0], "{}", signedBy(AccessKey, to[1])))
		require.Equal(t, 501, status, name)
		require.Contains(t, body, to[1]+" is not here", name)
	}
	// A form or a script of any web page can send this.
	status, body := send(t, newRequest(t, "POST", r.Endpoints.Functions+"/2015-03-31/functions/Shop-Echo/invocations",
		`{"do":"it for a page"}`, "Origin: https://page.example", "Content-Type: text/plain"))
	require.Equal(t, 501, status, body)
	for _, not := range []string{"it dry", "it for a page"} {
		require.NotContains(t, out.String(), not)
	}
}

// signedBy is a header of what is signed for a service, with a signature that is not checked.
func signedBy(key, service string) string {
	return "Authorization: AWS4-HMAC-SHA256 Credential=" + key + "/20261128/us-east-1/" + service +
		"/aws4_request, SignedHeaders=host, Signature=s"
}

// STS returns the caller's name, which idemctl records as the actor.
func TestCallerIdentity(t *testing.T) {
	out := &childtest.Output{}
	r := &Running{options: Options{Output: out}}
	r.front = newFront(r)
	for key, who := range map[string]string{AccessKey: "idemlocal", r.front.keyOf("Shop-Charge"): "Shop-Charge"} {
		rec := httptest.NewRecorder()
		r.front.ServeHTTP(rec, newRequest(t, "POST", "/", "Action=GetCallerIdentity&Version=2011-06-15",
			signedBy(key, "sts")))
		require.Equal(t, http.StatusOK, rec.Code)
		require.Contains(t, rec.Body.String(), "<Arn>arn:aws:iam::000000000000:user/"+who+"</Arn>")
	}
	require.Empty(t, out.String())
}

// What asks a service that is not here is answered with its name, or with what it asks if it is not signed.
func TestServicesThatAreNotHere(t *testing.T) {
	out := &childtest.Output{}
	r := &Running{options: Options{Output: out}}
	r.front = newFront(r)
	for want, c := range map[string]struct{ header, body string }{
		"Shop-Charge: secretsmanager is not here: only DynamoDB, SQS, SNS and Invoke of Lambda are"://
		{signedBy(r.front.keyOf("Shop-Charge"), "secretsmanager"), ""},
		`a call: "AWSCognitoIdentityProviderService.InitiateAuth" without a signature (Signature Version 4) is not here`://
		{"X-Amz-Target: AWSCognitoIdentityProviderService.InitiateAuth", "{}"},
		`a call: "AssumeRoleWithWebIdentity" without`: {"", "Action=AssumeRoleWithWebIdentity&Version=2011-06-15"},
		`a call: "POST /\x1b" without`: {},
	} {
		rec := httptest.NewRecorder()
		r.front.ServeHTTP(rec, newRequest(t, "POST", "/%1b", c.body, c.header))
		require.Equal(t, http.StatusNotImplemented, rec.Code)
		require.Contains(t, out.String(), want)
		var answer struct{ Message string }
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &answer))
		_, why, _ := strings.Cut(want, ": ")
		require.Contains(t, answer.Message, why)
	}
}
