package templatetests

import (
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"

	"github.com/idem-go/idempotency/infra"
)

func TestSweeperRefusesAKeyForAQueueOfYours(t *testing.T) {
	_, problems := synth(t, func(s awscdk.Stack) {
		infra.NewSweeper(s, "Sweeper", infra.NewTable(s, "Records", nil), &infra.SweeperProps{
			Function: infra.FunctionProps{Code: given(t)}, EncryptionKey: newKey(s), EscalationQueue: newQueue(s, "Support"),
		})
	})
	says(t, problems, true, "EncryptionKey", "leave it out where there is")
}
