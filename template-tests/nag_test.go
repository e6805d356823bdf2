package templatetests

import (
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/infra"
)

// suppression of a finding of cdk-nag's AWS Solutions checks.
type suppression struct{ path, rule, reason string }

var suppressions = []suppression{{
	"payments-api/StatementsRelay/Failures/Resource", "AwsSolutions-SQS3",
	"It is where the relay's failures end, the failure destination of an event source mapping, which cdk-nag " +
		"does not look at.",
}, {
	"orders-worker/Relay/Failures/Resource", "AwsSolutions-SQS3",
	"It is where the relay's failures end, the failure destination of an event source mapping, which cdk-nag " +
		"does not look at.",
}, {
	"payments-api/RefundSweeper/Escalations/Resource", "AwsSolutions-SQS3",
	"Operators empty it. What is in a message is in the index too, and an alarm is raised before it is lost.",
}, {
	"orders-worker/Sweeper/Escalations/Resource", "AwsSolutions-SQS3",
	"Operators empty it. What is in a message is in the index too, and an alarm is raised before it is lost.",
}}

// cdk-nag finds what is suppressed above, each with its reason, and nothing else.
// That all of it is found shows that the checks run.
func TestSolutionsChecks(t *testing.T) {
	app := infra.NewApp(ptr(t.TempDir()), map[string]string{"provider": "https://provider.example"})
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
	for _, s := range suppressions {
		require.NotEmpty(t, s.reason)
		suppressed = append(suppressed, s.path+" "+s.rule)
	}
	require.ElementsMatch(t, suppressed, found)
}
