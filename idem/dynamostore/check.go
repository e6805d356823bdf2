package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// TableDescriber is what [Check] uses of a *dynamodb.Client.
type TableDescriber interface {
	DescribeTable(context.Context, *dynamodb.DescribeTableInput,
		...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput,
		...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error)
}

// Check finds out, at deployment or when a long-lived process starts, whether the
// table is what a [Store] needs: that it can be reached, its keys, the index of what is
// due, and TTL. Its error names everything that is wrong and what to do, as
// [*idem.ConfigError] values joined. A global table with strong consistency is not asked
// for TTL, which it cannot have: see [Remover].
// It needs dynamodb:DescribeTable and dynamodb:DescribeTimeToLive, makes two
// calls, and does not show that the store's own actions are allowed.
//
// A function that scales out should not call it in every new process: both calls
// are limited to a few hundred a second for the whole account.
func Check(ctx context.Context, client TableDescriber, table string) error {
	if err := checkArguments(client, table); err != nil {
		return err
	}
	r := &retrier{attempt: 2 * DefaultAttemptTimeout, budget: DefaultBudget}
	k := r.begin(ctx, "Check")
	defer k.end()
	var described *dynamodb.DescribeTableOutput
	err := k.do(false, k.attempt, func(ctx context.Context) (err error) {
		described, err = client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table}, observe)
		return err
	})
	if err != nil {
		return explain(table, "dynamodb:DescribeTable", errors.Unwrap(err))
	}
	problems := tableProblems(described.Table)
	if described.Table != nil && described.Table.MultiRegionConsistency == types.MultiRegionConsistencyStrong {
		return joined(table, problems) // it cannot have TTL
	}
	var ttl *dynamodb.DescribeTimeToLiveOutput
	err = k.do(false, k.attempt, func(ctx context.Context) (err error) {
		ttl, err = client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &table}, observe)
		return err
	})
	if err != nil {
		return explain(table, "dynamodb:DescribeTimeToLive", errors.Unwrap(err))
	}
	return joined(table, append(problems, ttlProblems(ttl.TimeToLiveDescription)...))
}

func joined(table string, problems []string) error {
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = &protocol.ConfigError{What: what(table), Problem: p}
	}
	return errors.Join(errs...)
}

func what(table string) string { return fmt.Sprintf("dynamostore: table %q", table) }

func checkArguments(client any, table string) error {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return &protocol.ConfigError{What: "dynamostore: client", Problem: "is nil: make one with dynamostore.NewClient"}
	}
	if table == "" {
		return &protocol.ConfigError{What: "dynamostore: table",
			Problem: "is empty: name the table, for a deployed function usually os.Getenv(\"" + schema.EnvTable + "\")"}
	}
	return nil
}

func tableProblems(t *types.TableDescription) (problems []string) {
	if t == nil {
		return []string{"was not described by the endpoint: is it a DynamoDB?"}
	}
	switch t.TableStatus {
	case types.TableStatusActive, types.TableStatusUpdating:
	default:
		problems = append(problems, fmt.Sprintf("is %s: wait until it is ACTIVE", t.TableStatus))
	}
	kinds := map[string]types.ScalarAttributeType{}
	for _, a := range t.AttributeDefinitions {
		kinds[aws.ToString(a.AttributeName)] = a.AttributeType
	}
	if got := keyText(t.KeySchema, kinds); got != recordKeys {
		problems = append(problems, fmt.Sprintf("has the keys %s and needs %s: "+
			"keys cannot be changed, so create another table", got, recordKeys))
	}
	for _, x := range t.GlobalSecondaryIndexes {
		if aws.ToString(x.IndexName) != schema.OpenIndex {
			continue
		}
		if got := keyText(x.KeySchema, kinds); got != indexKeys {
			problems = append(problems, fmt.Sprintf("has index %q on %s and needs it on %s: "+
				"delete the index and create it again", schema.OpenIndex, got, indexKeys))
		}
		return problems
	}
	return append(problems, fmt.Sprintf("has no index %q: add one on %s, keys only; without it "+
		"no sweep finds the operations whose outcome is unknown", schema.OpenIndex, indexKeys))
}

// The keys of the table and of the index, as keyText writes them.
const (
	recordKeys = schema.PK + " (S), " + schema.SK + " (S)"
	indexKeys  = schema.OpenShard + " (S), " + schema.OpenDue + " (N)"
)

func keyText(keys []types.KeySchemaElement, kinds map[string]types.ScalarAttributeType) string {
	parts := make([]string, len(keys))
	for i, k := range keys {
		parts[i] = fmt.Sprintf("%s (%s)", aws.ToString(k.AttributeName), kinds[aws.ToString(k.AttributeName)])
	}
	return strings.Join(parts, ", ")
}

func ttlProblems(t *types.TimeToLiveDescription) []string {
	if t == nil || t.TimeToLiveStatus == types.TimeToLiveStatusDisabled ||
		t.TimeToLiveStatus == types.TimeToLiveStatusDisabling {
		return []string{fmt.Sprintf("has TTL off: turn it on for attribute %q, or records stay for ever", schema.ExpiresAt)}
	}
	if a := aws.ToString(t.AttributeName); a != schema.ExpiresAt {
		return []string{fmt.Sprintf("has TTL on attribute %q: turn it off and on again for %q, or records stay for ever",
			a, schema.ExpiresAt)}
	}
	return nil
}

// advise adds to a refusal what to do about it; no retry helps. Without a table it leaves
// that to the caller: [Check] has its own explanations.
func advise(table string, err error) error {
	if _, early := errors.AsType[*unsent](err); early && table != "" {
		return explain(table, "", err)
	}
	var api smithy.APIError
	if table == "" || !errors.As(err, &api) || isItemTooLarge(err) {
		return err
	}
	if api.ErrorCode() == "ValidationException" {
		op, ok := errors.AsType[*smithy.OperationError](err)
		// A transaction may mean another table.
		if speaksOfKeys(api.ErrorMessage()) && ok && op.Operation() != "TransactWriteItems" {
			return fmt.Errorf("%w (%w)", &protocol.ConfigError{What: what(table),
				Problem: fmt.Sprintf("has other keys than records have, %s, or no index %q on %s: check the name in %s; "+
					"dynamostore.Check says everything that differs",
					recordKeys, schema.OpenIndex, indexKeys, schema.EnvTable)}, err)
		}
		return err
	}
	return explain(table, "the actions in this package's documentation", err)
}

// speaksOfKeys reports whether a refused request did not fit the keys of the table or of its index, in
// the words of DynamoDB and of DynamoDB Local. The store's own keys never change.
func speaksOfKeys(message string) bool {
	return slices.ContainsFunc([]string{
		"required keys", "the schema", "schema type", "Missing the key", "conditions on the keys", "specified index",
		"key schema element", "Type mismatch for", "secondary index key to unsupported type",
	}, func(words string) bool { return strings.Contains(message, words) })
}

// explain says what to do about a call that failed.
func explain(table, action string, err error) error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w (%w)", &protocol.ConfigError{What: what(table), Problem: fmt.Sprintf(format, args...)}, err)
	}
	if _, early := errors.AsType[*unsent](err); early {
		return invalid("cannot be asked, nothing was sent: set AWS_REGION and credentials, such as AWS_PROFILE, " +
			"or give the function or machine a role")
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode() {
		case "ResourceNotFoundException":
			return invalid("does not exist in this region and account: check the name in %s and the region in AWS_REGION",
				schema.EnvTable)
		case "AccessDeniedException":
			return invalid("may not be used: allow %s on it", action)
		case "UnrecognizedClientException", "InvalidSignatureException", "IncompleteSignatureException",
			"MissingAuthenticationTokenException", "ExpiredTokenException", "InvalidClientTokenId":
			return invalid("cannot be reached with these credentials: check AWS_PROFILE or the function's role, the clock, " +
				"and that the credentials belong to the region in AWS_REGION")
		case "ValidationException":
			return invalid("is not a name that DynamoDB takes: check %s", schema.EnvTable)
		}
	}
	v := judge(err)
	switch {
	case !v.again && api == nil:
		return invalid("cannot be asked for: set AWS_REGION and credentials")
	case v.again:
		return invalid("did not answer: check the region in AWS_REGION, the endpoint in %s, and the way to it "+
			"(a function in a VPC needs a gateway endpoint for DynamoDB; with an interface endpoint alone set "+
			"AWS_ACCOUNT_ID_ENDPOINT_MODE to disabled)", schema.EnvEndpoint)
	}
	return invalid("cannot be checked with %s", action)
}
