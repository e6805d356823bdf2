package dynamostore

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

func TestCreateTableAndCheck(t *testing.T) {
	f := open(t, nil)
	ctx := t.Context()
	name := f.newTable(t)
	require.NoError(t, CreateTable(ctx, f.admin, name))
	require.NoError(t, Check(ctx, f.admin, name))
	require.NoError(t, CreateTable(ctx, f.admin, name), "a table that exists and fits")

	out, err := f.admin.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	require.NoError(t, err)
	require.Equal(t, types.StreamViewTypeNewAndOldImages, out.Table.StreamSpecification.StreamViewType)
	require.Equal(t, types.BillingModePayPerRequest, out.Table.BillingModeSummary.BillingMode)
	require.Equal(t, types.ProjectionTypeKeysOnly, out.Table.GlobalSecondaryIndexes[0].Projection.ProjectionType)

	f.expires(t, name, schema.ExpiresAt, false)
	says(t, Check(ctx, f.admin, name), "TTL off")
	says(t, CreateTable(ctx, f.admin, name), "TTL off")
}

// newTable is the name of a table that goes with the test.
func (f *fixture) newTable(t *testing.T) string {
	name := "new-" + rand.Text()
	t.Cleanup(func() {
		_, err := f.admin.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &name})
		require.NoError(t, err)
	})
	return name
}

// tableOfElse has other keys than records have.
func (f *fixture) tableOfElse(t *testing.T, kind types.ScalarAttributeType) string {
	t.Helper()
	return f.tableWith(t, []string{"id " + string(kind)}, nil)
}

// tableWith has these keys, and these of the index if there are any: each a name and a type.
func (f *fixture) tableWith(t *testing.T, keys, index []string) string {
	t.Helper()
	in := &dynamodb.CreateTableInput{TableName: aws.String(f.newTable(t)), BillingMode: types.BillingModePayPerRequest}
	schemaOf := func(keys []string) (elements []types.KeySchemaElement) {
		for i, key := range keys {
			name, kind, _ := strings.Cut(key, " ")
			in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &name,
				AttributeType: types.ScalarAttributeType(kind)})
			elements = append(elements, types.KeySchemaElement{AttributeName: &name,
				KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]})
		}
		return elements
	}
	in.KeySchema = schemaOf(keys)
	if index != nil {
		in.GlobalSecondaryIndexes = []types.GlobalSecondaryIndex{{IndexName: aws.String("open"),
			KeySchema: schemaOf(index), Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly}}}
	}
	_, err := f.admin.CreateTable(t.Context(), in)
	require.NoError(t, err)
	return *in.TableName
}

func (f *fixture) expires(t *testing.T, table, attribute string, on bool) {
	t.Helper()
	_, err := f.admin.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: &table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &attribute, Enabled: &on}})
	require.NoError(t, err)
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
	name := f.tableOfElse(t, types.ScalarAttributeTypeN)
	says(t, Check(ctx, f.admin, name), "has the keys id (N) and needs pk (S), sk (S)", `no index "open"`, "TTL off")

	f.expires(t, name, "ttl", true)
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
	lost := f.wire.loseFirst(1)
	name := f.newTable(t)
	require.NoError(t, CreateTable(t.Context(), client, name))
	require.Subset(t, lost, map[string]int{"CreateTable": 1, "DescribeTable": 1, "UpdateTimeToLive": 1})
	require.NoError(t, Check(t.Context(), f.admin, name))
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
		body       string // empty: there is no answer
	}{
		{"denied", "allow dynamodb:DescribeTable", noAccess},
		{"credentials", "cannot be reached with these credentials", signature},
		{"expired", "cannot be reached with these credentials", expired},
		{"no table", "does not exist", noTable},
		{"other", "cannot be checked with dynamodb:DescribeTable", other},
		{"no network", "gateway endpoint", ""},
		{"throttled", "did not answer", throttling},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &wire{}
			ctx, cancel := context.WithCancel(t.Context())
			w.set(func(n int, _ string, _ *http.Request) (*http.Response, error) {
				defer endAfter(3, n, cancel)
				if tc.body == "" {
					return nil, errReset
				}
				return answer(400, tc.body), nil
			})
			defer cancel()
			client := must(NewClient(aws.Config{}, nowhere(w)))
			err := Check(ctx, client, "table")
			says(t, err, tc.says, `table "table"`)
			require.Equal(t, 1, strings.Count(err.Error(), "dynamostore: table"), "what to do is said once: %v", err)
			cancel()
			says(t, CreateTable(ctx, client, "table"))
		})
	}
}

// Without credentials no request is made, and the error says what is missing.
func TestCheckWithoutCredentials(t *testing.T) {
	s, w := withCredentials(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errNoRole })
	says(t, Check(t.Context(), s.client.(*dynamodb.Client), "table"), "set AWS_REGION and credentials", errNoRole.Error())
	require.Empty(t, w.calls())
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
			w := &wire{fault: func(n int, _ string, _ *http.Request) (*http.Response, error) {
				defer endAfter(3, n, cancel)
				return answer(tc.code, tc.body), nil
			}}
			failed := isStoreError(t, over(w).Acquire(ctx, base, claim("k", "o1")), tc.maybe)
			require.Equal(t, tc.down, failed.Down)
			require.Equal(t, tc.down && tc.code < 500, failed.Throttled)
			require.Len(t, w.calls(), map[bool]int{true: 3, false: 1}[tc.again])
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
	tries := &ending{Client: must(NewClient(aws.Config{}, &ClientOptions{Endpoint: "http://" + addr})), end: cancel}
	failed := isStoreError(t, must(New(tries, "table", nil)).Acquire(ctx, base, claim("k", "o1")), false)
	require.ErrorContains(t, failed, "refused")
	require.Equal(t, 3, tries.n)
}

func TestNewFindsMistakes(t *testing.T) {
	client := must(NewClient(aws.Config{Region: "eu-central-1"}, nil))
	options := func(o Options) error { _, err := New(client, "t", &o); return err }
	ofClient := func(o ClientOptions) error { _, err := NewClient(aws.Config{Region: "x"}, &o); return err }
	for _, tc := range []struct {
		name string
		make func() error
		says string
	}{
		{"nil client", func() error { _, err := New(nil, "t", nil); return err }, "NewClient"},
		{"nil *dynamodb.Client", func() error { _, err := New(nilClient(), "t", nil); return err }, "NewClient"},
		{"empty table", func() error { _, err := New(client, "", nil); return err }, "name the table"},
		{"region", func() error { _, err := NewClient(aws.Config{}, nil); return err }, "AWS_REGION"},
		{"attempt", func() error { return options(Options{AttemptTimeout: -1}) }, "AttemptTimeout"},
		{"attempt without a unit", func() error { return options(Options{AttemptTimeout: 1}) }, "AttemptTimeout is 1ns"},
		{"budget", func() error { return options(Options{Budget: -1}) }, "Budget"},
		{"budget without a unit", func() error { return options(Options{Budget: 5}) }, "Budget is 5ns"},
		{"result", func() error { return options(Options{MaxResult: -1}) }, "MaxResult"},
		{"result too large", func() error { return options(Options{MaxResult: resultLimit + 1}) }, "MaxResult"},
		{"endpoint", func() error { return ofClient(ClientOptions{Endpoint: "127.0.0.1:8000"}) }, "Endpoint"},
		{"conns", func() error { return ofClient(ClientOptions{MaxIdleConns: -1}) }, "MaxIdleConns"},
		{"dial", func() error { return ofClient(ClientOptions{DialTimeout: -1}) }, "DialTimeout"},
		{"dial without a unit", func() error { return ofClient(ClientOptions{DialTimeout: 1}) }, "DialTimeout is 1ns"},
	} {
		t.Run(tc.name, func(t *testing.T) { says(t, tc.make(), tc.says) })
	}
}

// foreign is a unit of work of another store's kind.
type foreign struct{}

func (foreign) Seal() bool { return true }
func (foreign) Size() int  { return 0 }

func TestBadWritesAreRefusedBeforeTheyAreSent(t *testing.T) {
	s, n := scripted(nil)
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

// A request that gets no answer is in doubt, and the caller's time is kept. How the tries share it,
// TestBudgetHolds shows.
func TestASilentEndpoint(t *testing.T) {
	w := &wire{fault: func(_ int, _ string, req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	isStoreError(t, over(w).Acquire(ctx, base, claim("k", "o1")), true)
	require.NotEmpty(t, w.calls())
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

// DynamoDB and DynamoDB Local have different words. What does not speak of keys is not a fault of the table.
func TestOnlyWhatSpeaksOfKeysIsTheTables(t *testing.T) {
	for message, want := range map[string]bool{
		"The provided key element does not match the schema":                                           true,
		"The table does not have the specified index: open":                                            true,
		"Query condition missed key schema element: open_shard":                                        true,
		"The update expression attempted to update the secondary index key to unsupported type":        true,
		"The update expression attempted to update the secondary index key beyond allowed size limits": false,
		"An operand in the update expression has an incorrect data type":                               false,
		"Item size to update has exceeded the maximum allowed size":                                    false,
		"The parameter cannot be converted to a numeric value":                                         false,
	} {
		sent := func(operation string) error {
			return advise("records", &smithy.OperationError{OperationName: operation,
				Err: &smithy.GenericAPIError{Code: "ValidationException", Message: message}})
		}
		_, is := errors.AsType[*protocol.ConfigError](sent("UpdateItem"))
		require.Equal(t, want, is, message)
		_, is = errors.AsType[*protocol.ConfigError](sent("TransactWriteItems"))
		require.False(t, is, "a transaction may mean another table")
	}
}

// A table that exists and whose names differ is refused where the difference is known first: its keys by the
// first call, its index by the first sweep or the first claim that is in it.
func TestTableOfSomethingElseIsNamed(t *testing.T) {
	const refused = "has other keys than records have, pk (S), sk (S), or no index \"open\" on open_shard (S), " +
		"open_due (N): check the name in IDEM_TABLE; dynamostore.Check says everything that differs"
	f := open(t, nil)
	get := func(_ *testing.T, s *Store) error {
		_, err := s.Get(t.Context(), "acme#charge#digest")
		return err
	}
	err := get(t, must(New(f.admin, "nosuch", &patient)))
	require.ErrorIs(t, err, protocol.ErrStoreUnavailable)
	require.ErrorContains(t, err, `table "nosuch": does not exist in this region and account`)
	claim := func(watched bool) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error {
			engine := must(idem.New(s, &idem.Options{ClaimBudget: patient.Budget}))
			o := idem.Operation{Name: "charge", Repeat: idem.Repeatable}
			if watched {
				o.Repeat = idem.NotRepeatable // its claims are in the index
			}
			_, err := idem.Do(t.Context(), engine, o.Key("acme", "k"), 1,
				func(context.Context, int) (int, error) { return 1, nil })
			return err
		}
	}
	sweep := func(t *testing.T, s *Store) error {
		_, err := must(NewAdminStore(f.admin, *s.table, &patient)).Due(t.Context(), protocol.DueQuery{Until: time.Now()})
		return err
	}
	repeatable := claim(false)
	type calls = map[string]func(*testing.T, *Store) error
	for name, c := range map[string]struct {
		keys, index []string // name and type of each
		refused     calls
		check       string
	}{
		"another key": {[]string{"id S"}, nil, calls{"get": get, "claim": repeatable}, "has the keys id (S) and needs"},
		"keys of another type": {[]string{"pk N", "sk S"}, nil, calls{"get": get, "claim": repeatable},
			"has the keys pk (N), sk (S)"},
		"a key of another name": {[]string{"pk S", "sort S"}, nil, calls{"get": get, "claim": repeatable},
			"has the keys pk (S), sort (S)"},
		"no index": {[]string{"pk S", "sk S"}, nil, calls{"sweep": sweep}, `has no index "open"`},
		"an index on others": {[]string{"pk S", "sk S"}, []string{"shard S", "due N"}, calls{"sweep": sweep},
			`has index "open" on shard (S), due (N)`},
		"an index of another type": {[]string{"pk S", "sk S"}, []string{"open_shard S", "open_due S"},
			calls{"sweep": sweep, "claim": claim(true)}, `has index "open" on open_shard (S), open_due (S)`},
	} {
		t.Run(name, func(t *testing.T) {
			table := f.tableWith(t, c.keys, c.index)
			says(t, Check(t.Context(), f.admin, table), c.check, "TTL off")
			for call, of := range c.refused {
				err := of(t, must(New(f.admin, table, &patient)))
				require.ErrorContains(t, err, refused, call)
				says(t, err)
			}
		})
	}
}
