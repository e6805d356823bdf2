package templatetests

import (
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/infra"
)

// What the README of infra shows.
func Example_api() {
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("Shop"), nil)
	issuer := "https://issuer.example"

	records := infra.NewTable(stack, "Records", nil)

	charge := infra.NewFunction(stack, "Charge", &infra.FunctionProps{Package: "./testdata/charge", Timeout: 20 * time.Second})
	charge.UseTable(records, nil) // IDEM_TABLE, and the permissions for it

	infra.NewAPI(stack, "API", charge, &infra.APIProps{
		Routes:     []infra.Route{{Route: "POST /payments"}},
		Authorizer: infra.Authorizer{JWT: &infra.JWT{Issuer: issuer, Audience: []string{"payments"}}},
	})

	assembly := app.Synth(nil)
	defer os.RemoveAll(*assembly.Directory())
	fmt.Println(*(*assembly.Stacks())[0].StackName(), infra.Problems(app))
	// Output: Shop []
}

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
