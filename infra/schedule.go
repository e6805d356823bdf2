package infra

import (
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// schedule invokes the function every so many minutes. The target is the id of the rule's
// only target.
func schedule(scope constructs.Construct, id, target, description string, f *Function, every time.Duration) {
	rate := fmt.Sprintf("rate(%d minutes)", every/time.Minute)
	if every == time.Minute {
		rate = "rate(1 minute)"
	}
	rule := awsevents.NewCfnRule(scope, &id, &awsevents.CfnRuleProps{
		Description: &description, ScheduleExpression: &rate,
		Targets: &[]any{&awsevents.CfnRule_TargetProperty{Id: &target, Arn: f.FunctionArn()}},
	})
	f.AddPermission(&id, &awslambda.Permission{
		Principal: awsiam.NewServicePrincipal(jsii.String("events.amazonaws.com"), nil), SourceArn: rule.AttrArn(),
	})
}
