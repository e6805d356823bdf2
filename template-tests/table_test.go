package templatetests

import (
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/infra"
)

var ireland = &awscdk.Environment{Account: jsii.String("111111111111"), Region: jsii.String("eu-west-1")}

func TestTableRefuses(t *testing.T) {
	build := func(props infra.TableProps) func(awscdk.Stack) {
		return func(s awscdk.Stack) { infra.NewTable(s, "Records", &props) }
	}
	global := infra.TableProps{
		ReplicaRegions: []string{"eu-central-1", "eu-west-2"}, Consistency: awsdynamodb.MultiRegionConsistency_STRONG,
	}
	objects(t, ireland, map[string]objection{
		"eventually consistent replicas": refuses(build(infra.TableProps{ReplicaRegions: []string{"eu-central-1"}}),
			"two regions may both get a claim", "MultiRegionConsistency_STRONG", "keep one region"),
		"eventual by name": refuses(build(infra.TableProps{ReplicaRegions: []string{"eu-central-1"},
			Consistency: awsdynamodb.MultiRegionConsistency_EVENTUAL}), "two regions may both get a claim"),
		"too few regions": refuses(build(infra.TableProps{ReplicaRegions: []string{"eu-central-1"},
			Consistency: awsdynamodb.MultiRegionConsistency_STRONG}), "exactly three regions", "WitnessRegion"),
		"a witness alone": refuses(build(infra.TableProps{WitnessRegion: "eu-central-1"}), "name its ReplicaRegions"),
		"replicas added behind its back": refuses(func(s awscdk.Stack) {
			table := infra.NewTable(s, "Records", nil)
			table.AddReplica(&awsdynamodb.ReplicaTableProps{Region: jsii.String("eu-central-1")})
		}, "[eu-central-1 eu-west-1]", "two regions may both get a claim", "Do not call AddReplica"),
		"negative bounds":     refuses(build(infra.TableProps{MaxWriteUnits: -1}), "0 and -1", "zero for none"),
		"negative operations": refuses(build(infra.TableProps{Operations: -1}), "Operations is -1", "zero for no comparison"),
		"few units": refuses(build(infra.TableProps{Operations: 101, MaxWriteUnits: 400}),
			"MaxWriteUnits of 400 is too low for 101 operations a second", "at least 404"),
		"more than the index takes": warns(build(infra.TableProps{Operations: 19_201}),
			"the index takes 19200 watched operations a second", "the table should take 19201", "idem.WatchNever",
			"idem:index-limit"),
		"too long recovery": refuses(build(infra.TableProps{RecoveryDays: 36}), "RecoveryDays is 36", "1 to 35"),
		"a relay of a global table": refuses(func(s awscdk.Stack) {
			newRelay(t, s, infra.NewTable(s, "Records", &global))
		}, "a global table has no transactions", "leave the relay out"),
	})
	objects(t, nil, map[string]objection{
		"a key in a stack without region": refuses(func(s awscdk.Stack) {
			build(infra.TableProps{EncryptionKey: newKey(s)})(s)
		}, "EncryptionKey", "names its region", "Env"),
		"a global table in a stack without region": refuses(build(global), "names its region", "Env"),
	})
}
