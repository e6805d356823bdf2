// Command lingers says what it knows of its parent, and ends when gorun says so.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/idem-go/idempotency/local/cmd/gorun"
)

func main() {
	ctx, stop := gorun.EndWithParent(context.Background())
	defer stop()
	_, under := gorun.UnderGo()
	fmt.Println(os.Getpid(), under)
	if under {
		<-ctx.Done()
		fmt.Println("ended")
	}
}
