// Command app is the CDK app of the example: the stacks payments-api and
// orders-worker. The CDK command line runs it. Run directly, it synthesizes into cdk.out,
// prints what the checks found, and fails if there is an error. It then also writes a
// template with only the table into cdk.out/plain.
//
//	go run ./app [-c name=value]…
//
// The names are those of the context; -h lists them.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/infra"
)

// maxTemplate is CloudFormation's limit, in bytes.
const maxTemplate = 1 << 20

func main() {
	context := pairs{}
	out := flag.String("o", "cdk.out", "`folder` of the templates, where the CDK command line does not say")
	flag.Var(context, "c", "a setting, `name=value`; names: "+strings.Join(infra.SettingNames(), ", "))
	flag.Parse()
	started := time.Now()
	err := run(context, *out)
	jsii.Close() // may print "waitid: no child processes"; see the README
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv(underCLI) == "" {
		fmt.Printf("synthesized in %.1f s\n", time.Since(started).Seconds())
	}
}

// underCLI is set by the CDK command line: its output folder.
const underCLI = "CDK_OUTDIR"

func run(context pairs, out string) error {
	if os.Getenv(underCLI) != "" {
		app := infra.NewApp(nil, context)
		settings, err := infra.SettingsOf(app)
		if err != nil {
			return err
		}
		infra.NewStacks(app, settings)
		app.Synth(nil) // the command line prints the problems
		return nil
	}
	app := infra.NewApp(&out, context)
	settings, err := infra.SettingsOf(app)
	if err != nil {
		return err
	}
	infra.NewStacks(app, settings)
	plain := filepath.Join(out, "plain")
	app.Synth(nil)
	failed := report(infra.Problems(app))
	table := infra.NewApp(&plain, nil)
	infra.NewRecords(table)
	table.Synth(nil)
	failed = report(infra.Problems(table)) || failed
	if err := sizes(out, plain); err != nil {
		return err
	}
	if failed {
		return errors.New("the stacks have errors and must not be deployed")
	}
	return nil
}

func report(problems []infra.Problem) (failed bool) {
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, p)
		failed = failed || p.Error
	}
	return failed
}

func sizes(folders ...string) error {
	for _, folder := range folders {
		found, err := filepath.Glob(filepath.Join(folder, "*.template.json"))
		if err != nil {
			return err
		}
		for _, file := range found {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			var t struct{ Resources map[string]any }
			if err := json.Unmarshal(text, &t); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if len(text) > maxTemplate {
				return fmt.Errorf("%s has %d bytes, and CloudFormation takes %d", file, len(text), maxTemplate)
			}
			fmt.Printf("%s: %d resources, %.1f KB\n", file, len(t.Resources), float64(len(text))/1024)
		}
	}
	return nil
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
