package dynamostore

import (
	"context"
	"errors"
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
	name := f.tableWith(t, []string{"id N"}, nil)
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

// strong presents a table as a global one with strong consistency. To ask for its TTL is an error.
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

// Each kind of failure on the way to the table has a message of its own, with what to do.
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

// The mistakes in what a client, a store and the stores of operators are made of.
func TestMistakesInOptions(t *testing.T) {
	local := must(NewClient(aws.Config{Region: "eu-central-1"}, nil))
	store := func(c Client, table string) error { _, err := New(c, table, nil); return err }
	options := func(o Options) error { _, err := New(local, "t", &o); return err }
	client := func(o ClientOptions) error { _, err := NewClient(aws.Config{Region: "x"}, &o); return err }
	outbox := func(c OutboxClient) error { _, err := NewOutbox(c, "t", nil); return err }
	scanner := func(c ScannerClient, table string) error { _, err := NewScanner(c, table, nil); return err }
	remover := func(c RemoverClient) error { _, err := NewRemover(c, "t", nil); return err }
	keys := func(table string, names ...string) error {
		return options(Options{TableKeys: map[string][]string{table: names}})
	}
	var none *dynamodb.Client
	_, noRegion := NewClient(aws.Config{}, nil)
	_, noPauses := PausesOf(nil).ReadPaused(t.Context())
	for _, c := range []struct {
		err  error
		says string
	}{
		{store(nil, "t"), "NewClient"}, {store(none, "t"), "NewClient"}, {store(local, ""), "name the table"},
		{outbox(nil), "NewClient"}, {outbox(none), "NewClient"}, {remover(nil), "NewClient"}, {remover(none), "NewClient"},
		{scanner(nil, "t"), "NewClient"}, {scanner(local, ""), "name the table"}, {noRegion, "AWS_REGION"},
		{noPauses, ""},
		{options(Options{AttemptTimeout: -1}), "AttemptTimeout"},
		{options(Options{AttemptTimeout: 1}), "AttemptTimeout is 1ns"},
		{options(Options{Budget: -1}), "Budget"}, {options(Options{Budget: 5}), "Budget is 5ns"},
		{options(Options{MaxResult: -1}), "MaxResult"}, {options(Options{MaxResult: resultLimit + 1}), "MaxResult"},
		{options(Options{Sealer: wrong{more: -1 << 20}}), "Overhead"},
		{options(Options{Sealer: wrong{}, MaxResult: resultLimit}), "with a Sealer"},
		{options(Options{SealedOnly: true}), "Options.Sealer"},
		{keys("t"), "TableKeys"}, {keys("t", "a", "b", "c"), "TableKeys"}, {keys("t", ""), "TableKeys"},
		{keys("", "a"), "TableKeys"},
		{client(ClientOptions{Endpoint: "127.0.0.1:8000"}), "Endpoint"},
		{client(ClientOptions{MaxIdleConns: -1}), "MaxIdleConns"},
		{client(ClientOptions{DialTimeout: -1}), "DialTimeout"},
		{client(ClientOptions{DialTimeout: time.Nanosecond}), "DialTimeout is 1ns"},
	} {
		says(t, c.err, c.says)
	}
}
