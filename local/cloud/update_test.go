package cloud

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"
)

// echo is a function with a URL.
const echo = `
Resources:
  Echo:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./testdata/shop}
    Properties: {Runtime: provided.al2023, Timeout: 60}
  Web: {Type: AWS::Lambda::Url, Properties: {TargetFunctionArn: !GetAtt Echo.Arn, AuthType: NONE}}
`

// consumers is a function with a queue.
const consumers = `
Resources:
  Print:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./testdata/shop}
    Properties: {Runtime: provided.al2023, Timeout: 5}
  Plain: {Type: AWS::SQS::Queue, Properties: {VisibilityTimeout: 30}}
  FromPlain:
    Type: AWS::Lambda::EventSourceMapping
    Properties: {FunctionName: !Ref Print, EventSourceArn: !GetAtt Plain.Arn, BatchSize: 1,
      FunctionResponseTypes: [ReportBatchItemFailures]}
`

// rewrite changes the template of what runs.
func rewrite(t *testing.T, r *Running, text string) error {
	t.Helper()
	require.NoError(t, os.WriteFile(r.path, []byte(text), 0o600))
	return r.Update(t.Context())
}

// An API with another id has the port of the one that it replaces.
func TestAnUpdateFindsAPortForAnotherAPI(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	r, _ := started(t, echo, Options{Port: port})
	more := echo + "  Admin: {Type: AWS::Lambda::Url, Properties: {TargetFunctionArn: !GetAtt Echo.Arn, AuthType: NONE}}\n"
	require.NoError(t, rewrite(t, r, more))
	url := r.Endpoints.APIs["Shop-Web"]
	require.Equal(t, fmt.Sprintf("http://127.0.0.1:%d", port), url)
	require.NoError(t, rewrite(t, r, strings.Replace(more, "Web:", "Other:", 1)))
	require.Equal(t, url, r.Endpoints.APIs["Shop-Other"])
	require.Contains(t, post(t, url+"/x", "y"), `"rawPath":"/x"`)
}

// A function that the template does not have any more ends.
func TestAnUpdateEndsFunctions(t *testing.T) {
	const second = `
  Old:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./testdata/shop}
    Properties: {Runtime: provided.al2023, Timeout: 60}
`
	r, _ := started(t, echo+second, Options{})
	call := func() int {
		req := newRequest(t, "POST", r.Endpoints.Functions+"/2015-03-31/functions/Shop-Old/invocations", "{}",
			signedBy(AccessKey, "lambda"))
		status, _ := send(t, req)
		return status
	}
	require.Equal(t, 200, call())
	old, f := r.Pool("Shop-Old"), r.functions["Shop-Old"]
	require.NotEmpty(t, old.PIDs())
	require.NoError(t, rewrite(t, r, echo))
	require.Nil(t, r.Pool("Shop-Old"))
	require.Eventually(t, func() bool { return len(old.PIDs()) == 0 }, minute, tick, "its processes run on")
	require.Nil(t, f.take(), "a call that comes late finds no process")
}

// What was built before is removed when no process starts from it any more.
func TestAnUpdateRemovesBinaries(t *testing.T) {
	r, _ := started(t, echo, Options{})
	for _, timeout := range []string{"61", "62", "63", "64"} {
		require.NoError(t, rewrite(t, r, strings.Replace(echo, "60", timeout, 1)))
		r.draining.Wait()
	}
	require.Len(t, r.generations, 1)
	folders, err := filepath.Glob(filepath.Join(r.options.RunDir, "bin*"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(folders), 2, folders)
}

// What cannot be is refused before anything has changed, and what ran before runs on.
func TestARefusedUpdateChangesNothing(t *testing.T) {
	r, out := started(t, consumers, Options{})
	sends(t, r, "Shop-Plain", "one")
	prints(t, out, `"body":"one"`)
	changed := strings.NewReplacer("BatchSize: 1,", "BatchSize: 2,", "Timeout: 5", "Timeout: 40").Replace(consumers)
	err := rewrite(t, r, changed)
	require.ErrorContains(t, err, "the queue's visibility time-out, 30s, is less than the function's time-out, 40s")
	require.ErrorContains(t, err, "What ran before runs on.")
	sends(t, r, "Shop-Plain", "two")
	prints(t, out, `"body":"two"`)
}

// A function that was given a batch does not hold up the end.
func TestCloseEndsBatches(t *testing.T) {
	text := strings.NewReplacer("Timeout: 5", "Timeout: 900, Environment: {Variables: {SLEEP: 1h}}",
		"VisibilityTimeout: 30", "VisibilityTimeout: 900").Replace(consumers)
	r, out := started(t, text, Options{})
	sends(t, r, "Shop-Plain", "x")
	prints(t, out, "begin")
	pool := r.Pool("Shop-Print")
	require.NoError(t, pool.Freeze(pool.PIDs()[0]))
	closed := make(chan struct{})
	go func() { defer close(closed); r.Close() }()
	select {
	case <-closed:
	case <-time.After(minute):
		require.Fail(t, "it waits for the function's time-out")
	}
}

// A server that an update starts is missed when it ends, like one of the start.
func TestAServerThatEnds(t *testing.T) {
	r, _ := started(t, echo, Options{})
	alive, cancel := r.Alive(t.Context())
	defer cancel(nil)
	require.NoError(t, rewrite(t, r, echo+"  Q: {Type: AWS::SQS::Queue}\n"))
	require.NoError(t, r.queues.Close())
	select {
	case <-alive.Done():
	case <-time.After(minute):
		require.Fail(t, "the queue server has ended, and nothing says so")
	}
}

// What a template does not have any more does not act on its tables.
func TestAnUpdateOfTables(t *testing.T) {
	const text = `
Resources:
  Records:
    Type: AWS::DynamoDB::Table
    Properties:
      AttributeDefinitions: [{AttributeName: pk, AttributeType: S}]
      KeySchema: [{AttributeName: pk, KeyType: HASH}]
      TimeToLiveSpecification: {AttributeName: old, Enabled: true}
      GlobalSecondaryIndexes:
        - {IndexName: byKey, KeySchema: [{AttributeName: pk, KeyType: HASH}], Projection: {ProjectionType: KEYS_ONLY}}
`
	r, _ := started(t, text, Options{})
	for _, c := range []struct{ from, to, want string }{
		{"none", "none", "old"}, {"AttributeName: old", "AttributeName: other", "other"},
		{"      TimeToLiveSpecification: {AttributeName: old, Enabled: true}\n", "", ""},
	} {
		require.NoError(t, rewrite(t, r, strings.Replace(text, c.from, c.to, 1)))
		is, err := r.DynamoDB.DescribeTimeToLive(t.Context(),
			&dynamodb.DescribeTimeToLiveInput{TableName: aws.String("Shop-Records")})
		require.NoError(t, err)
		require.Equal(t, c.want, aws.ToString(is.TimeToLiveDescription.AttributeName))
	}
	require.ErrorContains(t, rewrite(t, r, strings.Replace(text, "KEYS_ONLY", "ALL", 1)), "other keys, indexes")
}

// Packages and functions may have one name.
func TestFunctionsAndPackagesOfOneName(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"a/shop", "b/shop"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, p), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, p, "main.go"), []byte("package main\nfunc main() {}\n"), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/x\n\ngo 1.26\n"), 0o600))
	t.Setenv("GOWORK", "off")
	started(t, `
Resources:
  First:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./a/shop}
    Properties: {Runtime: provided.al2023, FunctionName: first}
  Second:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./b/shop}
    Properties: {Runtime: provided.al2023, FunctionName: shop}
`, Options{Dir: dir, CacheDir: t.TempDir()})
}

// A record of a stream comes once, also after an update and after the next start.
const streamed = `
Resources:
  Records:
    Type: AWS::DynamoDB::Table
    Properties:
      AttributeDefinitions: [{AttributeName: pk, AttributeType: S}]
      KeySchema: [{AttributeName: pk, KeyType: HASH}]
      StreamSpecification: {StreamViewType: NEW_AND_OLD_IMAGES}
  Print:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./testdata/shop}
    Properties: {Runtime: provided.al2023, Timeout: 5}
  FromStream:
    Type: AWS::Lambda::EventSourceMapping
    Properties: {FunctionName: !Ref Print, EventSourceArn: !GetAtt Records.StreamArn, StartingPosition: LATEST,
      BatchSize: 10, FunctionResponseTypes: [ReportBatchItemFailures]}
`

func put(t *testing.T, r *Running, id string) error {
	_, err := r.DynamoDB.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("Shop-Records"),
		Item: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: id}}})
	return err
}

func TestAStreamGoesOnWhereItEnded(t *testing.T) {
	data := t.TempDir()
	r, out := started(t, streamed, Options{DataDir: data})
	count := func(id string) int { return strings.Count(out.String(), `"Keys":{"pk":{"S":"`+id+`"}}`) }
	kept := func() string {
		text, _ := os.ReadFile(filepath.Join(data, "streams.json"))
		return string(text)
	}
	// A batch whose position is not kept yet may come again.
	arrives := func(id string) {
		t.Helper()
		before := kept()
		require.NoError(t, put(t, r, id))
		require.Eventually(t, func() bool { return count(id) == 1 && kept() != before }, minute, tick, out)
	}
	arrives("first")
	require.NoError(t, rewrite(t, r, strings.Replace(streamed, "BatchSize: 10", "BatchSize: 11", 1)))
	arrives("second")
	require.Equal(t, 1, count("first"), "after an update")
	r.Close()
	r, out = started(t, streamed, Options{DataDir: data})
	arrives("third")
	require.Zero(t, count("first")+count("second"), "after the next start")
	_, err := r.DynamoDB.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: aws.String("Shop-Records")})
	require.NoError(t, err)
	require.NoError(t, r.Update(t.Context()))
	arrives("fourth")
}

// A message that no function had is there after the next start.
func TestMessagesAreKept(t *testing.T) {
	data := t.TempDir()
	disabled := strings.Replace(consumers, "BatchSize: 1,", "BatchSize: 1, Enabled: false,", 1)
	r, _ := started(t, disabled, Options{DataDir: data})
	require.Empty(t, r.Plan().Mappings)
	sends(t, r, "Shop-Plain", "kept")
	r.Close()
	_, out := started(t, consumers, Options{DataDir: data})
	prints(t, out, `"body":"kept"`)
}

// An invocation ends in the process that has begun it, also if its schedule is not there any more.
func TestAnUpdateLetsInvocationsEnd(t *testing.T) {
	const text = `
Resources:
  F:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./testdata/shop}
    Properties: {Runtime: provided.al2023, Timeout: 60, Environment: {Variables: {TAG: one, SLEEP: 3s}}}
  A: {Type: AWS::Events::Rule, Properties: {ScheduleExpression: rate(1 minute), Targets: [{Arn: !GetAtt F.Arn, Id: x}]}}
`
	r, out := started(t, text, Options{Adjust: func(p *Plan) {
		for i := range p.Schedules {
			if p.Schedules[i].Expression == "rate(1 minute)" {
				p.Schedules[i].Every = 200 * time.Millisecond
			}
		}
	}})
	prints(t, out, "begin one")
	changed := strings.NewReplacer("TAG: one", "TAG: two", "rate(1 minute)", "rate(2 minutes)").Replace(text)
	require.NoError(t, rewrite(t, r, changed))
	prints(t, out, "end one")
}

// A process is killed in the invocation that makes the call, also if its function has changed since, or was removed.
func TestInterruptionsAfterAnUpdate(t *testing.T) {
	const f = `
  F:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./testdata/shop}
    Properties: {Runtime: provided.al2023, Timeout: 60, Environment: {Variables: {TAG: one, SLEEP: 1h}}}
`
	for _, text := range []string{echo, echo + strings.Replace(f, "TAG: one", "TAG: two", 1)} {
		r, out := started(t, echo+f, Options{})
		go func() { _, _ = r.function("Shop-F").Call(context.WithoutCancel(t.Context()), []byte("{}")) }()
		prints(t, out, "begin one")
		trace := r.Pool("Shop-F").InFlight()[0].Trace
		_, err := r.Interrupt(Interruption{Function: "Shop-F", Call: 1})
		require.NoError(t, err)
		require.NoError(t, rewrite(t, r, text))
		r.interrupt(*r.front.count(Call{Trace: trace, Service: "dynamodb", Body: []byte("{}")}), trace)
		require.Contains(t, out.String(), "was killed before call 1")
	}
}

// Nothing is reported after the end.
func TestReportsEndWithClose(t *testing.T) {
	var reports atomic.Int64
	r := &Running{options: Options{Invoked: func(Invocation) { reports.Add(1) }}}
	r.Close()
	r.invoked(Invocation{})
	r.Close()
	require.Zero(t, reports.Load())
}

// Nothing waits for the report of a request.
func TestReportsHoldNothingUp(t *testing.T) {
	let := make(chan struct{})
	r, out := started(t, echo, Options{Invoked: func(Invocation) { <-let }})
	require.NotEmpty(t, post(t, r.Endpoints.APIs["Shop-Web"], "first"), out)
	close(let)
}
