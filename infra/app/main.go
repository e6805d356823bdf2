// Command app is the CDK app of the example: the stacks payments-api and
// orders-worker. The CDK command line runs it. Run directly, it synthesizes into cdk.out,
// prints what the checks found, and fails if there is an error.
//
//	go run ./app [-c name=value]…
//
// The names are those of the context; -h lists them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/infra"
)

func main() {
	context := map[string]string{}
	out := flag.String("o", "cdk.out", "`folder` of the templates, where the CDK command line does not say")
	usage := "a setting, `name=value`; names: " + strings.Join(infra.SettingNames(), ", ")
	flag.Func("c", usage, func(setting string) error {
		name, value, ok := strings.Cut(setting, "=")
		if !ok || name == "" {
			return errors.New("write it as name=value")
		}
		context[name] = value
		return nil
	})
	flag.Parse()
	started, stderr := time.Now(), os.Stderr
	if err := run(context, *out); err != nil {
		fmt.Fprintln(stderr, err)
		os.Exit(1)
	}
	if os.Getenv(underCLI) == "" {
		fmt.Printf("%s: synthesized in %.1f s\n", *out, time.Since(started).Seconds())
	}
}

// underCLI is set by the CDK command line: its output folder.
const underCLI = "CDK_OUTDIR"

func run(context map[string]string, out string) error {
	defer closeRuntime()
	outdir := &out
	if os.Getenv(underCLI) != "" {
		outdir = nil
	}
	app := infra.NewApp(outdir, context)
	settings, err := infra.SettingsOf(app)
	if err != nil {
		return err
	}
	infra.NewStacks(app, settings)
	app.Synth(nil)
	if outdir == nil {
		return nil // the command line prints the problems
	}
	failed := false
	for _, p := range infra.Problems(app) {
		fmt.Fprintln(os.Stderr, p)
		failed = failed || p.Error
	}
	if failed {
		return errors.New("the stacks have errors and must not be deployed")
	}
	return nil
}

// closeRuntime ends CDK's runtime. It waits for its process twice at the same time, and prints that one of
// the two found none.
func closeRuntime() {
	os.Stderr, _ = os.Open(os.DevNull)
	jsii.Close()
}
