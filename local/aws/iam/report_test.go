package iam

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	confined := role(t, `{"Statement":[{"Effect":"Allow","Action":["dynamodb:GetItem"],"Resource":"*","Condition":`+
		`{"ForAllValues:StringLike":{"dynamodb:LeadingKeys":"acme#*"}}},`+
		`{"Effect":"Allow","Action":"sns:*","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/a":"b"}}}]}`, noPuts)
	report := &Report{}
	require.Empty(t, report.Lines())
	add := func(action, resource string, keys ...string) string {
		q := Request{Action: action, Resource: resource, Context: map[string][]string{leadingKeys: keys}}
		return report.Add("Shop/Charge", confined, q, confined.Allows(q))
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { add("dynamodb:UpdateItem", books, fmt.Sprintf("globex#%d", i)) })
	}
	all.Wait()
	require.Len(t, report.Lines(), 1)
	require.Regexp(t, `^Shop/Charge: dynamodb:UpdateItem on table/Books \(key globex#\d\): not granted by role `+
		`Shop-Role; allow it in a policy, in CDK e\.g\. table\.GrantWriteData\(fn\)$`, report.Lines()[0])
	require.Empty(t, add("dynamodb:GetItem", books, "acme#1"), "it is granted")
	line := add("dynamodb:GetItem", books, "globex#0123456789012345678901234567890123456789")
	require.Equal(t, "Shop/Charge: dynamodb:GetItem on table/Books (key globex#012345678901234567890123456789012): not "+
		"granted by role Shop-Role, a condition is not met: ForAllValues:StringLike of dynamodb:LeadingKeys in policy 1",
		line)
	require.Empty(t, add("dynamodb:GetItem", books, "umbrella#1"), "there is such a line")
	add("dynamodb:PutItem", books)
	add("sns:Publish", "arn:aws:sns:us-east-1:000000000000:events")
	add("sqs:ReceiveMessage", jobs)
	add("sqs:PurgeQueue", jobs)
	require.Equal(t, []string{
		line,
		"Shop/Charge: dynamodb:PutItem on table/Books: denied to role Shop-Role by policy 2",
		"Shop/Charge: sns:Publish on events: granted by role Shop-Role as far as it is evaluated, which leaves out " +
			"StringEquals of aws:ResourceTag/a in policy 1",
		"Shop/Charge: sqs:PurgeQueue on jobs: not granted by role Shop-Role; allow it in a policy",
		"Shop/Charge: sqs:ReceiveMessage on jobs: not granted by role Shop-Role; allow it in a policy, in CDK e.g. " +
			"queue.GrantConsumeMessages(fn)",
	}, append(report.Lines()[:2:2], report.Lines()[3:]...))
}
