package dynamostore

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

func TestCreateTableAndCheck(t *testing.T) {
	f := open(t, nil)
	ctx := t.Context()
	name := "created-" + rand.Text()
	require.NoError(t, CreateTable(ctx, f.admin, name))
	defer func() {
		_, err := f.admin.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &name})
		require.NoError(t, err)
	}()
	require.NoError(t, Check(ctx, f.admin, name))
	require.NoError(t, CreateTable(ctx, f.admin, name), "a table that exists and fits")

	out, err := f.admin.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	require.NoError(t, err)
	require.Equal(t, types.StreamViewTypeNewAndOldImages, out.Table.StreamSpecification.StreamViewType)
	require.Equal(t, types.BillingModePayPerRequest, out.Table.BillingModeSummary.BillingMode)
	require.Equal(t, types.ProjectionTypeKeysOnly, out.Table.GlobalSecondaryIndexes[0].Projection.ProjectionType)

	_, err = f.admin.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{TableName: &name,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(schema.ExpiresAt),
			Enabled: aws.Bool(false)}})
	require.NoError(t, err)
	says(t, Check(ctx, f.admin, name), "TTL off")
	says(t, CreateTable(ctx, f.admin, name), "TTL off")
}

func says(t *testing.T, err error, texts ...string) {
	t.Helper()
	var mistake *protocol.ConfigError
	require.ErrorAs(t, err, &mistake)
	for _, s := range texts {
		require.ErrorContains(t, err, s)
	}
}

func TestCheckNamesEverythingThatIsWrong(t *testing.T) {
	f := open(t, nil)
	ctx := t.Context()
	name := "wrong-" + rand.Text()
	_, err := f.admin.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"),
			AttributeType: types.ScalarAttributeTypeN}},
		KeySchema: []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	require.NoError(t, err)
	defer func() {
		_, err := f.admin.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &name})
		require.NoError(t, err)
	}()
	says(t, Check(ctx, f.admin, name), "has the keys id (N) and needs pk (S), sk (S)", `no index "open"`, "TTL off")

	_, err = f.admin.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{TableName: &name,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("ttl"), Enabled: aws.Bool(true)}})
	require.NoError(t, err)
	says(t, Check(ctx, f.admin, name), `TTL on attribute "ttl"`)

	says(t, Check(ctx, f.admin, "no-such-table"), "does not exist in this region and account",
		"AWS_REGION", schema.EnvTable)
	says(t, Check(ctx, f.admin, "a"), "is not a name")
	says(t, Check(ctx, nil, "t"), "NewClient")
	says(t, Check(ctx, (*dynamodb.Client)(nil), "t"), "NewClient")
	says(t, Check(ctx, f.admin, ""), "name the table")
	says(t, CreateTable(ctx, nil, "t"), "NewClient")
}

// strong makes of a table a global one that is strongly consistent, of which nobody asks for
// TTL.
type strong struct{ *dynamodb.Client }

func (c strong) DescribeTable(ctx context.Context, in *dynamodb.DescribeTableInput,
	o ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	out, err := c.Client.DescribeTable(ctx, in, o...)
	if err == nil {
		out.Table.MultiRegionConsistency = types.MultiRegionConsistencyStrong
	}
	return out, err
}

func (strong) DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput,
	...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error) {
	return nil, api("ValidationException")
}

func TestCheckAsksAStronglyConsistentGlobalTableForNoTTL(t *testing.T) {
	f := open(t, nil)
	require.NoError(t, Check(t.Context(), strong{f.admin}, f.table))
}

// An index of the right name on the wrong attributes finds nothing.
func TestCheckLooksAtTheIndex(t *testing.T) {
	problems := tableProblems(&types.TableDescription{
		TableStatus: types.TableStatusCreating,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: "S"}, {AttributeName: aws.String("sk"), AttributeType: "S"},
		},
		KeySchema: []types.KeySchemaElement{{AttributeName: aws.String("pk")}, {AttributeName: aws.String("sk")}},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndexDescription{
			{IndexName: aws.String("other")},
			{IndexName: aws.String("open"), KeySchema: []types.KeySchemaElement{{AttributeName: aws.String("sk")}}},
		},
	})
	require.Len(t, problems, 2)
	require.Contains(t, problems[0], "CREATING")
	require.Contains(t, problems[1], `index "open" on sk (S)`)
	require.Len(t, tableProblems(nil), 1)
}

// Lost replies do not leave a table without TTL, or a second try without success.
func TestCreateTableSurvivesLostReplies(t *testing.T) {
	f := open(t, nil)
	client := dynamodb.New(f.admin.Options(), func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: f.wire}
		o.Retryer = aws.NopRetryer{}
	})
	lost := map[string]bool{}
	f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
		if !lost[op] {
			lost[op] = true
			return f.wire.loseReply(req)
		}
		return nil, nil
	})
	name := "lost-" + rand.Text()
	require.NoError(t, CreateTable(t.Context(), client, name))
	require.Subset(t, lost, map[string]bool{"CreateTable": true, "DescribeTable": true, "UpdateTimeToLive": true})
	require.NoError(t, Check(t.Context(), f.admin, name))
	_, err := f.admin.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: &name})
	require.NoError(t, err)
}

// Trouble on the way to the table is told apart, each with what to do.
func TestCheckExplainsTrouble(t *testing.T) {
	const signature = `{"__type":"com.amazon.coral.service#UnrecognizedClientException","message":"The security token ` +
		`included in the request is invalid."}`
	const other = `{"__type":"com.amazon.coral.service#SomethingElseException","message":"something else"}`
	const expired = `{"__type":"com.amazon.coral.service#ExpiredTokenException","message":"The security token included ` +
		`in the request is expired"}`
	for _, tc := range []struct {
		name, says string
		fault      func() (*http.Response, error)
	}{
		{"denied", "allow dynamodb:DescribeTable", func() (*http.Response, error) { return answer(400, noAccess), nil }},
		{"credentials", "cannot be reached with these credentials",
			func() (*http.Response, error) { return answer(400, signature), nil }},
		{"expired", "cannot be reached with these credentials",
			func() (*http.Response, error) { return answer(400, expired), nil }},
		{"no table", "does not exist", func() (*http.Response, error) { return answer(400, noTable), nil }},
		{"other", "cannot be checked with dynamodb:DescribeTable",
			func() (*http.Response, error) { return answer(400, other), nil }},
		{"no network", "gateway endpoint", func() (*http.Response, error) { return nil, errReset }},
		{"throttled", "did not answer", func() (*http.Response, error) { return answer(400, throttling), nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &wire{}
			ctx, cancel := context.WithCancel(t.Context())
			w.set(func(n int, _ string, _ *http.Request) (*http.Response, error) {
				defer endAfter(3, n, cancel)
				return tc.fault()
			})
			client, err := NewClient(aws.Config{}, &ClientOptions{Endpoint: "http://127.0.0.1:1", Transport: w})
			require.NoError(t, err)
			defer cancel()
			err = Check(ctx, client, "table")
			says(t, err, tc.says, `table "table"`)
			require.Equal(t, 1, strings.Count(err.Error(), "dynamostore: table"), "what to do is said once: %v", err)
			cancel()
			says(t, CreateTable(ctx, client, "table"))
		})
	}
}

// Without credentials no request is made, and the error says what is missing.
func TestCheckWithoutCredentials(t *testing.T) {
	w := &wire{}
	client, err := NewClient(aws.Config{
		Region: "eu-central-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, errors.New("no credentials found")
		}),
	}, &ClientOptions{Transport: w})
	require.NoError(t, err)
	says(t, Check(t.Context(), client, "table"), "set AWS_REGION and credentials", "no credentials found")
	require.Empty(t, w.calls())
	s, err := New(client, "table", nil)
	require.NoError(t, err)
	isStoreError(t, s.Acquire(t.Context(), base, claim("k", "o1")), false)
}

// answers is a store whose table answers everything with one error body; the
// third call ends the context.
func answers(t *testing.T, code int, body string, end context.CancelFunc) (*Store, *wire) {
	t.Helper()
	w := &wire{}
	w.set(func(n int, _ string, _ *http.Request) (*http.Response, error) {
		defer endAfter(3, n, end)
		return answer(code, body), nil
	})
	client, err := NewClient(aws.Config{}, &ClientOptions{Endpoint: "http://127.0.0.1:1", Transport: w})
	require.NoError(t, err)
	s, err := New(client, "table", nil)
	require.NoError(t, err)
	return s, w
}

// The real error bodies, through the real SDK.
func TestErrorBodies(t *testing.T) {
	for _, tc := range []struct {
		name               string
		code               int
		body               string
		maybe, again, down bool
	}{
		{"provisioned throughput", 400, throttled, false, true, true},
		{"throttling", 400, throttling, false, true, true},
		{"request limit", 400, requestLimit, false, true, true},
		{"too many requests", 429, ``, false, true, true},
		{"transaction conflict", 400, conflicting, false, true, false},
		{"internal", 500, internal, true, true, true},
		{"no body", 503, ``, true, true, true},
		{"a proxy's page", 502, `<html>Bad Gateway</html>`, true, true, true},
		{"cut short", 200, `{"Attributes":{"pk"`, true, true, false},
		{"access denied", 400, noAccess, false, false, false},
		{"validation", 400, invalid, false, false, false},
		{"no table", 400, noTable, false, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, w := answers(t, tc.code, tc.body, cancel)
			failed := isStoreError(t, s.Acquire(ctx, base, claim("k", "o1")), tc.maybe)
			require.Equal(t, tc.down, failed.Down)
			require.Equal(t, tc.down && tc.code < 500, failed.Throttled)
			if tc.again {
				require.Len(t, w.calls(), 3)
			} else {
				require.Len(t, w.calls(), 1)
			}
		})
	}
}

// Nobody listens: nothing was sent, so nothing is in doubt.
func TestRefusedPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client, err := NewClient(aws.Config{}, &ClientOptions{Endpoint: "http://" + addr})
	require.NoError(t, err)
	tries := &ending{Client: client, end: cancel}
	s, err := New(tries, "table", nil)
	require.NoError(t, err)
	failed := isStoreError(t, s.Acquire(ctx, base, claim("k", "o1")), false)
	require.ErrorContains(t, failed, "refused")
	require.Equal(t, 3, tries.n)
}

// Somebody listens and never answers: the write is in doubt and the caller's
// time is kept. How the tries share it, TestBudgetHolds shows.
func TestBlackHole(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	}()
	client, err := NewClient(aws.Config{}, &ClientOptions{Endpoint: "http://" + l.Addr().String()})
	require.NoError(t, err)
	s, err := New(client, "table", nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	isStoreError(t, s.Acquire(ctx, base, claim("k", "o1")), true)
	require.NoError(t, l.Close())
	<-done
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, conns)
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
}

func TestNewFindsMistakes(t *testing.T) {
	client, err := NewClient(aws.Config{Region: "eu-central-1"}, nil)
	require.NoError(t, err)
	for _, tc := range []struct {
		name string
		make func() error
		says string
	}{
		{"nil client", func() error { _, err := New(nil, "t", nil); return err }, "NewClient"},
		{"nil *dynamodb.Client", func() error { _, err := New(nilClient(), "t", nil); return err }, "NewClient"},
		{"empty table", func() error { _, err := New(client, "", nil); return err }, "name the table"},
		{"attempt", func() error { _, err := New(client, "t", &Options{AttemptTimeout: -1}); return err }, "AttemptTimeout"},
		{"budget", func() error { _, err := New(client, "t", &Options{Budget: -1}); return err }, "Budget"},
		{"result", func() error { _, err := New(client, "t", &Options{MaxResult: -1}); return err }, "MaxResult"},
		{"result too large", func() error {
			_, err := New(client, "t", &Options{MaxResult: resultLimit + 1})
			return err
		}, "MaxResult"},
		{"endpoint", func() error {
			_, err := NewClient(aws.Config{}, &ClientOptions{Endpoint: "127.0.0.1:8000"})
			return err
		}, "Endpoint"},
		{"conns", func() error {
			_, err := NewClient(aws.Config{Region: "x"}, &ClientOptions{MaxIdleConns: -1})
			return err
		}, "MaxIdleConns"},
		{"dial", func() error {
			_, err := NewClient(aws.Config{Region: "x"}, &ClientOptions{DialTimeout: -1})
			return err
		}, "DialTimeout"},
		{"attempt without a unit", func() error {
			_, err := New(client, "t", &Options{AttemptTimeout: 1})
			return err
		}, "AttemptTimeout is 1ns"},
		{"budget without a unit", func() error {
			_, err := New(client, "t", &Options{Budget: 5})
			return err
		}, "Budget is 5ns"},
		{"dial without a unit", func() error {
			_, err := NewClient(aws.Config{Region: "x"}, &ClientOptions{DialTimeout: 1})
			return err
		}, "DialTimeout is 1ns"},
		{"region", func() error { _, err := NewClient(aws.Config{}, nil); return err }, "AWS_REGION"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.make()
			var mistake *protocol.ConfigError
			require.ErrorAs(t, err, &mistake)
			require.ErrorContains(t, err, tc.says)
		})
	}
}

// foreign is a unit of work of another store's kind.
type foreign struct{}

func (foreign) Seal() bool { return true }
func (foreign) Size() int  { return 0 }

func TestBadWritesAreRefusedBeforeTheyAreSent(t *testing.T) {
	s, n := scripted(t, nil, nil)
	ctx := t.Context()
	f := completion("k", "o1", nil)
	f.Unit = foreign{}
	require.ErrorIs(t, s.Finish(ctx, base, f), errors.ErrUnsupported)
	// Audit entries are written by an AdminStore alone.
	require.ErrorIs(t, s.Settle(ctx, base, protocol.Settlement{ID: "k", Audit: &protocol.Audit{ID: "k"}}),
		errors.ErrUnsupported)
	f = completion("k", "o1", make([]byte, DefaultMaxResult+1))
	var large *protocol.TooLargeError
	require.ErrorAs(t, s.Finish(ctx, base, f), &large)
	require.Equal(t, protocol.TooLargeError{Size: DefaultMaxResult + 1, Limit: DefaultMaxResult}, *large)
	require.ErrorAs(t, s.RecordStep(ctx, base,
		protocol.StepWrite{ID: "k", Owner: "o", Write: "w", Name: "s", Result: make([]byte, DefaultMaxResult+1)}), &large)
	isStoreError(t, s.RecordStep(ctx, base, protocol.StepWrite{ID: "k", Owner: "o", Write: "w"}), false)
	f.Ending = protocol.Ending{State: protocol.Failed}
	isStoreError(t, s.Finish(ctx, base, f), false)
	f.Ending = protocol.Ending{State: protocol.InProgress}
	isStoreError(t, s.Finish(ctx, base, f), false)
	for _, version := range []int{-1, math.MaxInt32 + 1} {
		f.Ending = protocol.Ending{State: protocol.Completed, Result: []byte("1"), ResponseVersion: version}
		require.ErrorContains(t, isStoreError(t, s.Finish(ctx, base, f), false), "count versions from zero")
	}
	w := resolution("k", "seen", "", protocol.Ending{State: protocol.Completed, Result: noise(10000)})
	isStoreError(t, s.Settle(ctx, base, w), false)
	w.Kind = protocol.EventClaim
	isStoreError(t, s.Settle(ctx, base, w), false)
	require.Zero(t, *n)
}

// ending is a client that ends the context after its third write.
type ending struct {
	Client
	end context.CancelFunc
	n   int
}

func (c *ending) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	out, err := c.Client.PutItem(ctx, in, o...)
	c.n++
	endAfter(3, c.n-1, c.end)
	return out, err
}

// TestRefusalSaysWhatToDo: a wrong table is a mistake in the set-up, and reads so
// wherever the store's error ends up.
func TestRefusalSaysWhatToDo(t *testing.T) {
	s := open(t, nil).Store
	s.table, s.retry.table = aws.String("nosuch"), "nosuch"
	_, err := s.Get(t.Context(), "acme#charge#digest")
	require.ErrorIs(t, err, protocol.ErrStoreUnavailable)
	require.ErrorContains(t, err, `table "nosuch": does not exist in this region and account`)
}

func TestTableOfSomethingElseIsNamed(t *testing.T) {
	f := open(t, nil)
	orders := f.table + "-orders"
	_, err := f.admin.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &orders, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"),
			AttributeType: types.ScalarAttributeTypeS}},
		KeySchema: []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	require.NoError(t, err)
	s, err := New(f.admin, orders, &patient)
	require.NoError(t, err)
	_, err = s.Get(t.Context(), "acme#charge#digest")
	require.ErrorContains(t, err, "has other keys than records have")
	engine, err := idem.New(s, &idem.Options{ClaimBudget: patient.Budget})
	require.NoError(t, err)
	_, err = idem.Do(t.Context(), engine, idem.Operation{Name: "charge"}.Key("acme", "k"), 1,
		func(context.Context, int) (int, error) { return 1, nil })
	require.ErrorContains(t, err, "has other keys than records have: check the name in IDEM_TABLE")
}
