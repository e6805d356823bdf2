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
	records := infra.NewTable(stack, "Records", nil)
	worker := infra.NewFunction(stack, "Worker", &infra.FunctionProps{Package: "./sweeper"})
	worker.UseTable(records, nil)
	statements := infra.NewLater(stack, "Statements", records, worker, &infra.LaterProps{
		Route: infra.Route{Route: "POST /statements"}, Status: "/statements/{id}",
		Queue: infra.QueueProps{Repeat: infra.Repeatable},
	})
	infra.NewRelay(stack, "Relay", records, &infra.RelayProps{Queues: map[string]awssqs.IQueue{
		"orders": awssqs.NewQueue(stack, jsii.String("Orders"), nil), "statements": statements.Queue,
	}})
	infra.NewSweeper(stack, "Ready", records, nil)
	infra.NewSweeper(stack, "Own", records, &infra.SweeperProps{Function: infra.FunctionProps{Package: "./sweeper"}})
	assembly := app.Synth(nil)
	os.RemoveAll(*assembly.Directory())
	if problems := infra.Problems(app); len(problems) > 0 {
		log.Fatal(problems)
	}
	fmt.Println(*(*assembly.Stacks())[0].StackName() + ", synthesized")
}
