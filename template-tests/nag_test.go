package templatetests

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/infra"
)

// suppression of a finding of cdk-nag's AWS Solutions checks.
type suppression struct{ path, rule, reason string }

// always are those of both flavours.
var always = []suppression{{
	"payments-api/StatementsRelay/Failures/Resource", "AwsSolutions-SQS3",
	"It is where the relay's failures end, the failure destination of an event source mapping, which cdk-nag does not look at.",
}, {
	"orders-worker/Relay/Failures/Resource", "AwsSolutions-SQS3",
	"It is where the relay's failures end, the failure destination of an event source mapping, which cdk-nag does not look at.",
}, {
	"payments-api/RefundSweeper/People/Resource", "AwsSolutions-SQS3",
	"People empty it. A message that nobody has taken is in the index too, and an alarm is raised before it is lost.",
}, {
	"orders-worker/Sweeper/People/Resource", "AwsSolutions-SQS3",
	"People empty it. A message that nobody has taken is in the index too, and an alarm is raised before it is lost.",
}}

var suppressions = map[string][]suppression{
	"http": always,
	"rest": slices.Concat(always, []suppression{{
		"payments-api/API/REST/Resource", "AwsSolutions-APIG2",
		"The library and the handler validate requests: the key, the body's JSON, the input. A problem document says what is wrong.",
	}, {
		"payments-api/API/REST/CloudWatchRole/Resource", "AwsSolutions-IAM4",
		"API Gateway writes an account's access logs with this policy of AWS and takes no other.",
	}, {
		"payments-api/API/REST/DeploymentStage.prod/Resource", "AwsSolutions-APIG3",
		"A web ACL is the service's choice: APIProps takes one.",
	}, {
		"payments-api/API/REST/DeploymentStage.prod/Resource", "AwsSolutions-APIG6",
		"The access log has every request with its errors. Execution logs would have bodies and keys in them.",
	}, {
		"payments-api/API/REST/Default/payments/POST/Resource", "AwsSolutions-COG4",
		"The example's callers sign with IAM. Tokens and Lambda authorizers are settings.",
	}, {
		"payments-api/API/REST/Default/refunds/POST/Resource", "AwsSolutions-COG4",
		"The example's callers sign with IAM. Tokens and Lambda authorizers are settings.",
	}, {
		"payments-api/API/REST/Default/statements/POST/Resource", "AwsSolutions-COG4",
		"The example's callers sign with IAM. Tokens and Lambda authorizers are settings.",
	}, {
		"payments-api/API/REST/Default/statements/{id}/GET/Resource", "AwsSolutions-COG4",
		"The example's callers sign with IAM. Tokens and Lambda authorizers are settings.",
	}, {
		"payments-api/API/REST/Default/statements/{id}/HEAD/Resource", "AwsSolutions-COG4",
		"The example's callers sign with IAM. Tokens and Lambda authorizers are settings.",
	}, {
		"payments-api/API/REST/Default/statements/{id}/DELETE/Resource", "AwsSolutions-COG4",
		"The example's callers sign with IAM. Tokens and Lambda authorizers are settings.",
	}}),
}

// cdk-nag finds what is suppressed above, each with its reason, and nothing else.
// That all of it is found shows that the checks run.
func TestSolutionsChecks(t *testing.T) {
	for flavour, want := range suppressions {
		t.Run(flavour, func(t *testing.T) {
			app := infra.NewApp(ptr(t.TempDir()), map[string]string{"api": flavour, "provider": "https://provider.example"})
			app.Node().SetContext(ptr("aws:cdk:bundling-stacks"), []string{})
			awscdk.Aspects_Of(app).Add(cdknag.NewAwsSolutionsChecks(nil), nil)
			settings, err := infra.SettingsOf(app)
			require.NoError(t, err)
			infra.NewStacks(app, settings)
			app.Synth(nil)
			var found, suppressed []string
			for _, p := range infra.Problems(app) {
				rule, _, _ := strings.Cut(p.Message, ":")
				rule, _, _ = strings.Cut(rule, "[")
				found = append(found, p.Path+" "+rule)
			}
			for _, s := range want {
				require.NotEmpty(t, s.reason)
				suppressed = append(suppressed, s.path+" "+s.rule)
			}
			require.ElementsMatch(t, suppressed, found)
		})
	}
}
