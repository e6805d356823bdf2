package templatetests

import (
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

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
			props: infra.TableProps{ReplicaRegions: []string{"eu-central-1"},
				Consistency: awsdynamodb.MultiRegionConsistency_EVENTUAL},
			says: []string{"two regions may both get a claim"},
		},
		"too few regions": {
			props: infra.TableProps{ReplicaRegions: []string{"eu-central-1"},
				Consistency: awsdynamodb.MultiRegionConsistency_STRONG},
			says: []string{"exactly three regions", "WitnessRegion"},
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
	t.Run("a relay of a global table", func(t *testing.T) {
		_, problems := synthIn(t, ireland, func(s awscdk.Stack) {
			table := infra.NewTable(s, "Records", &infra.TableProps{
				ReplicaRegions: []string{"eu-central-1", "eu-west-2"}, Consistency: awsdynamodb.MultiRegionConsistency_STRONG,
			})
			infra.NewRelay(s, "Relay", table, &infra.RelayProps{
				Function: infra.FunctionProps{Code: given(t)}, Queues: map[string]awssqs.IQueue{"orders": newQueue(s, "Orders")},
			})
		})
		says(t, problems, true, "a global table has no transactions", "leave the relay out")
	})
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
