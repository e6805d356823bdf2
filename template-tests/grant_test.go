package templatetests

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/secrets"
	"github.com/idem-go/idempotency/infra"
)

// granted is what a fresh role is allowed after grant.
func granted(t *testing.T, grant func(*infra.Table, awsiam.IGrantable)) ([]statement, []infra.Problem) {
	t.Helper()
	got, problems := synthIn(t, ireland, func(s awscdk.Stack) {
		role := awsiam.NewRole(s, jsii.String("Role"), &awsiam.RoleProps{
			AssumedBy: awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
		})
		grant(infra.NewTable(s, "Records", nil), role)
	})
	return got.statements(t), problems
}

// A grant allows what the tests of the library were seen to call, and nothing else.
func TestGrants(t *testing.T) {
	text, err := os.ReadFile("../idem/dynamostore/testdata/permissions.json")
	require.NoError(t, err)
	var needed map[string]map[string][]string // actions by resource, by who calls
	require.NoError(t, json.Unmarshal(text, &needed))
	// Lambda reads the stream.
	needed["relay"]["records/stream"] = []string{"dynamodb:DescribeStream", "dynamodb:GetRecords",
		"dynamodb:GetShardIterator", "dynamodb:ListStreams"}
	resources := map[string]string{"records": "Records.Arn", "records/index/open": "Records.Arn/index/open",
		"records/stream": "Records.StreamArn"}
	grants := map[string]func(*infra.Table, awsiam.IGrantable){
		"handler":  func(table *infra.Table, role awsiam.IGrantable) { table.GrantHandler(role, nil) },
		"operator": (*infra.Table).GrantOperator, "reader": (*infra.Table).GrantReader,
		"sweeper": (*infra.Table).GrantSweeper, "remover": (*infra.Table).GrantRemover,
		"scanner": (*infra.Table).GrantScanner, "check": (*infra.Table).GrantCheck, "ledger": (*infra.Table).GrantLedger,
		"relay": func(table *infra.Table, role awsiam.IGrantable) { table.GrantRelay(role) },
	}
	require.Len(t, needed, len(grants))
	for name, actions := range needed {
		t.Run(name, func(t *testing.T) {
			want := map[string][]string{}
			for resource, all := range actions {
				if resource != "business" { // the tables of the tests: each service names its own actions
					require.Contains(t, resources, resource)
					want[resources[resource]] = all
				}
			}
			statements, problems := granted(t, grants[name])
			require.Empty(t, problems)
			got := map[string][]string{}
			for _, s := range statements {
				require.Empty(t, s.conditions)
				require.Len(t, s.resources, 1)
				got[s.resources[0]] = slices.Sorted(slices.Values(append(got[s.resources[0]], s.actions...)))
			}
			require.Equal(t, want, got)
		})
	}
}

func TestGrantConfinesToTenants(t *testing.T) {
	// A pattern is what a key of the library begins with.
	pattern := func(tenant string) string {
		id := idem.Operation{Name: "op", Repeat: idem.Repeatable}.Key(tenant, "value").ID()
		prefix, _, _ := strings.Cut(id, "#op#")
		return prefix + "#*"
	}
	for name, tc := range map[string]struct {
		options infra.GrantOptions
		want    []any
	}{
		"tenants": {infra.GrantOptions{Tenants: []string{"acme", "a*b/ü$ +"}},
			[]any{pattern("acme"), pattern("a*b/ü$ +")}},
		"without tenant": {infra.GrantOptions{WithoutTenant: true}, []any{pattern(idem.SingleTenant)}},
		"both": {infra.GrantOptions{Tenants: []string{"acme"}, WithoutTenant: true, Secrets: []string{"charge"}},
			[]any{"#*", "acme#*"}},
		"a secret": {infra.GrantOptions{Tenants: []string{"acme"}, Secrets: []string{"charge card"}},
			[]any{"acme#*", checkRecord(t, "charge card")}},
	} {
		t.Run(name, func(t *testing.T) {
			statements, problems := granted(t,
				func(table *infra.Table, role awsiam.IGrantable) { table.GrantHandler(role, &tc.options) })
			require.Empty(t, problems)
			for _, s := range statements {
				require.Equal(t, map[string]any{
					"ForAllValues:StringLike": map[string]any{"dynamodb:LeadingKeys": tc.want},
					"Null":                    map[string]any{"dynamodb:LeadingKeys": "false"},
				}, s.conditions, s.actions)
			}
		})
	}
}

// checkRecord is the id of the record by which an engine checks the secret of an operation.
func checkRecord(t *testing.T, operation string) string {
	h := idemtest.New(t, nil)
	key := idem.Operation{Name: operation, Values: secrets.New([]byte("a secret of 16 bytes"))}.Key("acme", "value")
	_, err := idem.Do(t.Context(), h.Engine, key, 1, func(context.Context, int) (int, error) { return 1, nil })
	require.NoError(t, err)
	for _, rec := range h.Store.Records() {
		if protocol.IsCheckID(rec.ID) {
			return rec.ID
		}
	}
	require.Fail(t, "there is no check record")
	return ""
}

// A grantee that is confined to tenants reads what is paused, and cannot change it.
func TestGrantOfPauses(t *testing.T) {
	statements, problems := granted(t, func(table *infra.Table, role awsiam.IGrantable) {
		table.GrantHandler(role, &infra.GrantOptions{Tenants: []string{"acme"}})
		table.GrantPauses(role)
	})
	require.Empty(t, problems)
	var pauses []statement
	for _, s := range statements {
		if condition, ok := s.conditions["ForAllValues:StringEquals"]; ok {
			require.Equal(t, map[string]any{"dynamodb:LeadingKeys": []any{"pauses"}}, condition)
			require.Equal(t, map[string]any{"dynamodb:LeadingKeys": "false"}, s.conditions["Null"])
			pauses = append(pauses, s)
		}
	}
	require.Len(t, pauses, 1)
	require.Equal(t, []string{"dynamodb:GetItem"}, pauses[0].actions)
	require.Equal(t, []string{"Records.Arn"}, pauses[0].resources)
}

func TestGrantRefusesTenants(t *testing.T) {
	for name, tc := range map[string]struct {
		tenant string
		says   []string
	}{
		"empty":    {"", []string{"a tenant in GrantOptions is empty", "WithoutTenant"}},
		"none":     {idem.SingleTenant, []string{"a tenant in GrantOptions is empty", "WithoutTenant"}},
		"too long": {string(make([]byte, 65)), []string{"65 bytes", "more than 64"}},
	} {
		t.Run(name, func(t *testing.T) {
			statements, problems := granted(t, func(table *infra.Table, role awsiam.IGrantable) {
				table.GrantHandler(role, &infra.GrantOptions{Tenants: []string{tc.tenant}})
			})
			says(t, problems, true, tc.says...)
			require.NotEmpty(t, statements[0].conditions, "a mistake opens the table")
		})
	}
}
