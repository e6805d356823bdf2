package templatetests

import (
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/infra"
)

// noDeadLetters are queues that cdk-nag's AWS Solutions checks find without dead-letter queues, and why they need none.
var noDeadLetters = map[string]string{
	"payments-api/StatementsRelay/Failures/Resource":  endOfFailures,
	"orders-worker/Relay/Failures/Resource":           endOfFailures,
	"payments-api/RefundSweeper/Escalations/Resource": endOfEscalations,
	"orders-worker/Sweeper/Escalations/Resource":      endOfEscalations,
}

const (
	endOfFailures = "It is where the relay's failures end, the failure destination of an event source mapping, " +
		"which cdk-nag does not look at."
	endOfEscalations = "Operators empty it. What is in a message is in the index too, and an alarm is raised before it " +
		"is lost."
)

// cdk-nag finds the queues above, and nothing else. That all of it is found shows that the checks run.
func TestSolutionsChecks(t *testing.T) {
	app := infra.NewApp(ptr(t.TempDir()), map[string]string{"provider": "https://provider.example"})
	app.Node().SetContext(ptr("aws:cdk:bundling-stacks"), []string{})
	awscdk.Aspects_Of(app).Add(cdknag.NewAwsSolutionsChecks(nil), nil)
	settings, err := infra.SettingsOf(app)
	require.NoError(t, err)
	infra.NewStacks(app, settings)
	app.Synth(nil)
	var found, wanted []string
	for _, p := range infra.Problems(app) {
		rule, _, _ := strings.Cut(p.Message, ":")
		rule, _, _ = strings.Cut(rule, "[")
		found = append(found, p.Path+" "+rule)
	}
	for path := range noDeadLetters {
		wanted = append(wanted, path+" AwsSolutions-SQS3")
	}
	require.ElementsMatch(t, wanted, found)
}
