package templatetests

import (
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/infra"
)

// Who records results may make data keys and unwrap them, who reads them unwrap them, with this key and
// its encryption context alone. The table's own grants have none of it.
func TestGrantsOfTheKeyThatEncryptsResults(t *testing.T) {
	context := map[string]string{"app": "payments", "stage": "live"}
	for name, tc := range map[string]struct {
		context    map[string]string
		conditions map[string]any
	}{
		"with a context":    {context, map[string]any{"StringEquals": map[string]any{"kms:EncryptionContext:app": "payments", "kms:EncryptionContext:stage": "live"}}},
		"without a context": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := synth(t, func(s awscdk.Stack) {
				key := awskms.NewKey(s, jsii.String("Key"), nil)
				table := infra.NewTable(s, "Records", nil)
				f := infra.NewFunction(s, "Payments", &infra.FunctionProps{Code: given(t)})
				table.GrantHandler(f, nil)
				f.Seal(key, tc.context)
				reader := awsiam.NewRole(s, jsii.String("Reader"), &awsiam.RoleProps{AssumedBy: awsiam.NewAccountRootPrincipal()})
				table.GrantReader(reader)
				infra.GrantDecrypt(key, reader, tc.context)
			})
			require.Empty(t, problems)
			granted := map[string][]string{}
			for _, s := range got.statements(t) {
				if s.resources[0] != "Key.Arn" {
					continue
				}
				require.Equal(t, []string{"Key.Arn"}, s.resources)
				require.Len(t, s.roles, 1)
				require.Equal(t, len(tc.conditions), len(s.conditions))
				for operator, want := range tc.conditions {
					require.Equal(t, want, s.conditions[operator])
				}
				granted[s.roles[0]] = append(granted[s.roles[0]], s.actions...)
			}
			require.Len(t, granted, 2)
			require.ElementsMatch(t, []string{"kms:Decrypt", "kms:GenerateDataKey"}, granted["PaymentsRole"])
			require.ElementsMatch(t, []string{"kms:Decrypt"}, granted["Reader"])
			environment := at(got.named(t, "AWS::Lambda::Function", "Payments"), "Environment", "Variables", "IDEM_KMS_KEY")
			require.Equal(t, []string{"Key.Arn"}, texts(environment))
		})
	}
}
