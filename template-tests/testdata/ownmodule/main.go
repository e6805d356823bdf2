// A CDK app of another module's.
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/infra"
)

func main() {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("Shop"), nil)
	infra.NewRelay(stack, "Relay", infra.NewTable(stack, "Records", nil), &infra.RelayProps{
		Queues: map[string]awssqs.IQueue{"orders": awssqs.NewQueue(stack, jsii.String("Orders"), nil)},
	})
	assembly := app.Synth(nil)
	os.RemoveAll(*assembly.Directory())
	if problems := infra.Problems(app); len(problems) > 0 {
		log.Fatal(problems)
	}
	fmt.Println(*(*assembly.Stacks())[0].StackName() + ", synthesized")
}
