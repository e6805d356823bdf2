// Command sleeper works for three seconds.
package main

import (
	"context"
	"encoding/json"
	"os"
	"time"

	awslambda "github.com/aws/aws-lambda-go/lambda"
)

func main() {
	awslambda.Start(func(context.Context, json.RawMessage) (any, error) {
		println("begin", os.Getenv("TAG"))
		time.Sleep(3 * time.Second)
		println("end", os.Getenv("TAG"))
		return nil, nil
	})
}
