// Command deploy is the CDK app.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2authorizers"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/infra"
)

func main() {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("Example"), nil)
	records := infra.NewTable(stack, "Records", nil)
	totals := awsdynamodb.NewTableV2(stack, jsii.String("Totals"), &awsdynamodb.TablePropsV2{
		PartitionKey: &awsdynamodb.Attribute{Name: jsii.String("customer"), Type: awsdynamodb.AttributeType_STRING},
	})

	shop := infra.NewFunction(stack, "Shop", &infra.FunctionProps{Package: "./cmd/shop", Timeout: 5 * time.Second})
	shop.UseTable(records, nil)
	issuer := jsii.String("https://issuer.example")
	infra.NewAPI(stack, "API", shop, &infra.APIProps{
		Routes: []infra.Route{{Route: "POST /orders"}},
		Authorizer: awsapigatewayv2authorizers.NewHttpJwtAuthorizer(jsii.String("JWT"), issuer,
			&awsapigatewayv2authorizers.HttpJwtAuthorizerProps{JwtAudience: jsii.Strings("shop")}),
	})

	packing := infra.NewFunction(stack, "Packing", &infra.FunctionProps{
		Package: "./cmd/packing", Environment: &map[string]*string{"TOTALS_TABLE": totals.TableName()},
	})
	packing.UseTable(records, nil)
	infra.GrantTransaction(totals, packing, "UpdateItem")
	orders := infra.NewQueue(stack, "Orders", packing, &infra.QueueProps{Repeat: infra.Repeatable, FIFO: true})
	infra.NewRelay(stack, "Relay", records, &infra.RelayProps{Queues: map[string]awssqs.IQueue{"orders": orders}})

	app.Synth(nil)
	for _, problem := range infra.Problems(app) {
		fmt.Fprintln(os.Stderr, problem)
	}
}
