package dynamostore

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

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
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(schema.ExpiresAt), Enabled: aws.Bool(false)}})
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
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeN}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
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

	says(t, Check(ctx, f.admin, "no-such-table"), "does not exist in this region and account", "AWS_REGION", schema.EnvTable)
	says(t, Check(ctx, f.admin, "a"), "is not a name")
	says(t, Check(ctx, nil, "t"), "NewClient")
	says(t, Check(ctx, (*dynamodb.Client)(nil), "t"), "NewClient")
	says(t, Check(ctx, f.admin, ""), "name the table")
	says(t, CreateTable(ctx, nil, "t"), "NewClient")
}

// strong makes of a table a global one that is strongly consistent, of which nobody asks for
// TTL.
type strong struct{ *dynamodb.Client }

func (c strong) DescribeTable(ctx context.Context, in *dynamodb.DescribeTableInput, o ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	out, err := c.Client.DescribeTable(ctx, in, o...)
	if err == nil {
		out.Table.MultiRegionConsistency = types.MultiRegionConsistencyStrong
	}
	return out, err
}

func (strong) DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error) {
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
	const signature = `{"__type":"com.amazon.coral.service#UnrecognizedClientException","message":"The security token included in the request is invalid."}`
	const other = `{"__type":"com.amazon.coral.service#SomethingElseException","message":"something else"}`
	const expired = `{"__type":"com.amazon.coral.service#ExpiredTokenException","message":"The security token included in the request is expired"}`
	for _, tc := range []struct {
		name, says string
		fault      func() (*http.Response, error)
	}{
		{"denied", "allow dynamodb:DescribeTable", func() (*http.Response, error) { return answer(400, noAccess), nil }},
		{"credentials", "cannot be reached with these credentials", func() (*http.Response, error) { return answer(400, signature), nil }},
		{"expired", "cannot be reached with these credentials", func() (*http.Response, error) { return answer(400, expired), nil }},
		{"no table", "does not exist", func() (*http.Response, error) { return answer(400, noTable), nil }},
		{"other", "cannot be checked with dynamodb:DescribeTable", func() (*http.Response, error) { return answer(400, other), nil }},
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
