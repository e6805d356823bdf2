package templatetests

import (
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/infra"
)

func containsAll(s string, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(s, text) {
			return false
		}
	}
	return true
}

func TestTable(t *testing.T) {
	got, problems := synth(t, func(s awscdk.Stack) { infra.NewTable(s, "Records", nil) })
	require.Empty(t, problems)
	resource, p := got.only(t, "AWS::DynamoDB::GlobalTable")
	require.Equal(t, "Retain", resource["DeletionPolicy"])
	require.Equal(t, "Retain", resource["UpdateReplacePolicy"])
	replicas := p["Replicas"].([]any)
	require.Equal(t, []any{map[string]any{
		"Region":                           map[string]any{"Ref": "AWS::Region"},
		"DeletionProtectionEnabled":        true,
		"PointInTimeRecoverySpecification": map[string]any{"PointInTimeRecoveryEnabled": true},
		"GlobalSecondaryIndexes":           []any{map[string]any{"IndexName": "open"}},
	}}, replicas)
	delete(p, "Replicas")
	require.Equal(t, map[string]any{
		"BillingMode": "PAY_PER_REQUEST",
		"AttributeDefinitions": []any{
			map[string]any{"AttributeName": "pk", "AttributeType": "S"},
			map[string]any{"AttributeName": "sk", "AttributeType": "S"},
			map[string]any{"AttributeName": "open_shard", "AttributeType": "S"},
			map[string]any{"AttributeName": "open_due", "AttributeType": "N"},
		},
		"KeySchema": []any{
			map[string]any{"AttributeName": "pk", "KeyType": "HASH"},
			map[string]any{"AttributeName": "sk", "KeyType": "RANGE"},
		},
		"GlobalSecondaryIndexes": []any{map[string]any{
			"IndexName": "open",
			"KeySchema": []any{
				map[string]any{"AttributeName": "open_shard", "KeyType": "HASH"},
				map[string]any{"AttributeName": "open_due", "KeyType": "RANGE"},
			},
			"Projection": map[string]any{"ProjectionType": "KEYS_ONLY"},
		}},
		"TimeToLiveSpecification": map[string]any{"AttributeName": "expires_at", "Enabled": true},
		"StreamSpecification":     map[string]any{"StreamViewType": "NEW_AND_OLD_IMAGES"},
		"SSESpecification":        map[string]any{"SSEEnabled": false},
	}, p)
}

func TestTableSettings(t *testing.T) {
	got, problems := synthIn(t, ireland, func(s awscdk.Stack) {
		infra.NewTable(s, "Records", &infra.TableProps{
			Name: "records", MaxReadUnits: 100, MaxWriteUnits: 400, RecoveryDays: 7,
			EncryptionKey: awskms.NewKey(s, jsii.String("Key"), nil),
		})
	})
	require.Empty(t, problems)
	_, p := got.only(t, "AWS::DynamoDB::GlobalTable")
	require.Equal(t, "records", p["TableName"])
	require.Equal(t, map[string]any{"MaxWriteRequestUnits": 400.0}, p["WriteOnDemandThroughputSettings"])
	require.Equal(t, map[string]any{"SSEEnabled": true, "SSEType": "KMS"}, p["SSESpecification"])
	replica := p["Replicas"].([]any)[0].(map[string]any)
	require.Equal(t, map[string]any{"MaxReadRequestUnits": 100.0}, replica["ReadOnDemandThroughputSettings"])
	require.Equal(t, map[string]any{"PointInTimeRecoveryEnabled": true, "RecoveryPeriodInDays": 7.0}, replica["PointInTimeRecoverySpecification"])
	require.Contains(t, replica, "SSESpecification")
}

func TestTableDisposable(t *testing.T) {
	got, problems := synth(t, func(s awscdk.Stack) { infra.NewTable(s, "Records", &infra.TableProps{Disposable: true}) })
	resource, p := got.only(t, "AWS::DynamoDB::GlobalTable")
	require.Equal(t, "Delete", resource["DeletionPolicy"])
	require.Equal(t, false, p["Replicas"].([]any)[0].(map[string]any)["DeletionProtectionEnabled"])
	says(t, problems, false, "disposable", "no deletion protection", "idem:disposable-table")
}

func TestTableStronglyConsistentEverywhere(t *testing.T) {
	got, problems := synthIn(t, ireland, func(s awscdk.Stack) {
		infra.NewTable(s, "Records", &infra.TableProps{
			ReplicaRegions: []string{"eu-central-1"}, WitnessRegion: "eu-west-2", Consistency: awsdynamodb.MultiRegionConsistency_STRONG,
		})
	})
	_, p := got.only(t, "AWS::DynamoDB::GlobalTable")
	require.Equal(t, "STRONG", p["MultiRegionConsistency"])
	require.Len(t, p["Replicas"], 2)
	require.NotContains(t, p, "TimeToLiveSpecification")
	says(t, problems, false, "neither TTL nor transactions", "dynamostore.Options.WithoutTransactions", schema.EnvWithoutTransactions, "idem:global-table")
}

// A function is told what kind of table it uses, and a relay has nothing to do there.
func TestFunctionsOfAStronglyConsistentGlobalTable(t *testing.T) {
	build := func(p *infra.TableProps, relay bool) (template, []infra.Problem) {
		return synthIn(t, ireland, func(s awscdk.Stack) {
			table := infra.NewTable(s, "Records", p)
			infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t)}).UseTable(table, nil)
			if relay {
				infra.NewRelay(s, "Relay", table, &infra.RelayProps{
					Function: infra.FunctionProps{Code: given(t)},
					Queues:   map[string]awssqs.IQueue{"orders": awssqs.NewQueue(s, jsii.String("Orders"), nil)},
				})
			}
		})
	}
	strong := &infra.TableProps{ReplicaRegions: []string{"eu-central-1", "eu-west-2"}, Consistency: awsdynamodb.MultiRegionConsistency_STRONG}
	got, _ := build(strong, false)
	require.Equal(t, "true", got.environment(t, "Handler")[schema.EnvWithoutTransactions])
	got, _ = build(nil, false)
	require.NotContains(t, got.environment(t, "Handler"), schema.EnvWithoutTransactions)
	_, problems := build(strong, true)
	says(t, problems, true, "a global table has no transactions", "leave the relay out")
}

var ireland = &awscdk.Environment{Account: jsii.String("111111111111"), Region: jsii.String("eu-west-1")}

func TestTableRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		props infra.TableProps
		after func(*infra.Table)
		says  []string
	}{
		"eventually consistent replicas": {
			props: infra.TableProps{ReplicaRegions: []string{"eu-central-1"}},
			says:  []string{"two regions may both get a claim", "MultiRegionConsistency_STRONG", "keep one region"},
		},
		"eventual by name": {
			props: infra.TableProps{ReplicaRegions: []string{"eu-central-1"}, Consistency: awsdynamodb.MultiRegionConsistency_EVENTUAL},
			says:  []string{"two regions may both get a claim"},
		},
		"too few regions": {
			props: infra.TableProps{ReplicaRegions: []string{"eu-central-1"}, Consistency: awsdynamodb.MultiRegionConsistency_STRONG},
			says:  []string{"exactly three regions", "WitnessRegion"},
		},
		"a witness alone": {
			props: infra.TableProps{WitnessRegion: "eu-central-1"},
			says:  []string{"name its ReplicaRegions"},
		},
		"replicas added behind its back": {
			after: func(table *infra.Table) {
				table.AddReplica(&awsdynamodb.ReplicaTableProps{Region: jsii.String("eu-central-1")})
			},
			says: []string{"[eu-central-1 eu-west-1]", "two regions may both get a claim", "Do not call AddReplica"},
		},
		"negative bounds":   {props: infra.TableProps{MaxWriteUnits: -1}, says: []string{"0 and -1", "zero for none"}},
		"too long recovery": {props: infra.TableProps{RecoveryDays: 36}, says: []string{"RecoveryDays is 36", "1 to 35"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := synthIn(t, ireland, func(s awscdk.Stack) {
				table := infra.NewTable(s, "Records", &tc.props)
				if tc.after != nil {
					tc.after(table)
				}
			})
			says(t, problems, true, tc.says...)
		})
	}
	t.Run("a key in a stack without region", func(t *testing.T) {
		_, problems := synth(t, func(s awscdk.Stack) {
			infra.NewTable(s, "Records", &infra.TableProps{EncryptionKey: awskms.NewKey(s, jsii.String("Key"), nil)})
		})
		says(t, problems, true, "EncryptionKey", "names its region", "Env")
	})
	t.Run("a global table in a stack without region", func(t *testing.T) {
		_, problems := synth(t, func(s awscdk.Stack) {
			infra.NewTable(s, "Records", &infra.TableProps{
				ReplicaRegions: []string{"eu-central-1", "eu-west-2"}, Consistency: awsdynamodb.MultiRegionConsistency_STRONG,
			})
		})
		says(t, problems, true, "names its region", "Env")
	})
}
