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
	context := pairs{}
	out := flag.String("o", "cdk.out", "`folder` of the templates, where the CDK command line does not say")
	flag.Var(context, "c", "a setting, `name=value`; names: "+strings.Join(infra.SettingNames(), ", "))
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

func run(context pairs, out string) error {
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
	if report(infra.Problems(app)) {
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

func report(problems []infra.Problem) (failed bool) {
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, p)
		failed = failed || p.Error
	}
	return failed
}

// pairs collects the settings.
type pairs map[string]string

func (p pairs) String() string { return "" }

func (p pairs) Set(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return errors.New("write it as name=value")
	}
	p[name] = value
	return nil
}
