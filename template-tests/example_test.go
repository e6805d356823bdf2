package templatetests

import (
	"fmt"
	"os"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/infra"
)

// Somebody else's app: a table, and a role of its own that may handle records.
func Example() {
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("Billing"), nil)

	records := infra.NewTable(stack, "Records", nil)
	role := awsiam.NewRole(stack, jsii.String("Worker"), &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("ecs-tasks.amazonaws.com"), nil),
	})
	records.GrantHandler(role, &infra.GrantOptions{Tenants: []string{"acme"}})
	awscdk.NewCfnOutput(stack, jsii.String("Table"), &awscdk.CfnOutputProps{Value: records.TableName()})

	assembly := app.Synth(nil)
	defer os.RemoveAll(*assembly.Directory())
	fmt.Println(*(*assembly.Stacks())[0].StackName(), infra.Problems(app))
	// Output: Billing []
}
